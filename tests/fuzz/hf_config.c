/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of a folder of Hugging Face transformers on any bytes, beside a few small tensors: an error with a text, for
 * the tensors are no model. */
#include "config.h"

#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "import/import.h"

static char folder[40];

static void write_file(const char *name, const void *data, size_t bytes)
{
    char path[80];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    FUZZ_REQUIRE(file && fwrite(data, 1, bytes, file) == bytes && !fclose(file));
}

/* Some of the names that decide what a configuration says. */
static void write_weights(void)
{
    static const char header[] =
        "{\"shared.weight\":{\"dtype\":\"F32\",\"shape\":[4,1],\"data_offsets\":[0,16]},"
        "\"encoder.block.1.layer.1.mlp.router.classifier.weight\":{\"dtype\":\"F16\",\"shape\":[2,1],"
        "\"data_offsets\":[16,20]},"
        "\"decoder.block.0.layer.2.mlp.router.classifier.weight\":{\"dtype\":\"BF16\",\"shape\":[2,1],"
        "\"data_offsets\":[20,24]},"
        "\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[4,1],\"data_offsets\":[24,40]}}";
    unsigned char file[8 + sizeof header - 1 + 40] = {0};
    for (size_t i = 0, n = sizeof header - 1; i < 8; i++) file[i] = (unsigned char)(n >> 8 * i);
    memcpy(file + 8, header, sizeof header - 1);
    write_file("model.safetensors", file, sizeof file);
}

static void remove_folder(void)
{
    static const char *const names[] = {"config.json", "model.safetensors"};
    char path[80];
    for (size_t i = 0; i < SYI_COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/sy-fuzz-hf-XXXXXX");
    FUZZ_REQUIRE(mkdtemp(folder) != NULL);
    write_weights();
    FUZZ_REQUIRE(!atexit(remove_folder));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct syi_import import;
    struct sy_error err = {0};
    if (!folder[0]) make_folder();
    write_file("config.json", data, size);
    memset(&import, 0, sizeof import);
    FUZZ_REQUIRE(syi_config_defaults(&import.config, NULL) == SY_OK);
    int status = syi_import_open(&import, folder, "hf", &err);
    if (!status) status = syi_import_check(&import, &err);
    FUZZ_REQUIRE(status && err.code == status && err.text[0]);
    syi_import_close(&import);
    return 0;
}
