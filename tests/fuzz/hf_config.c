/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of a folder of Hugging Face transformers on any bytes, beside a few small tensors: what has the member
 * "model_type"; the index of a folder whose weights are in several files: what has the member "weight_map"; anything else is
 * what a tokenizer and generate() have beside config.json. An error with a text, for the tensors are no model. */
#include "config.h"

#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "import/import.h"

#define FOLDER "/tmp/sy-fuzz-hf-XXXXXX"
/* One whose config.json is the input, one whose index is, and one where the files beside config.json are. */
static char folder[sizeof FOLDER], sharded[sizeof FOLDER], texts[sizeof FOLDER];
static const char *const beside[] = {"generation_config.json", "tokenizer_config.json", "tokenizer.json",
                                     "added_tokens.json"};

static void write_file(const char *to, const char *name, const void *data, size_t bytes)
{
    char path[80];
    snprintf(path, sizeof path, "%s/%s", to, name);
    FILE *file = fopen(path, "wb");
    FUZZ_REQUIRE(file && fwrite(data, 1, bytes, file) == bytes && !fclose(file));
}

/* Some of the names that decide what a configuration says. */
static void write_weights(const char *to, const char *name)
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
    write_file(to, name, file, sizeof file);
}

static void write_config(const char *to)
{
    static const char config[] =
        "{\"model_type\":\"t5\",\"vocab_size\":4,\"d_model\":1,\"d_kv\":1,\"d_ff\":1,"
        "\"num_heads\":1,\"num_layers\":1}";
    write_file(to, "config.json", config, sizeof config - 1);
}

/* What an index may name, under the names that its seeds have. */
static void write_shards(void)
{
    static const char empty[] = "{}", pickle[] = "\x80\x02}.";
    unsigned char header[8 + sizeof empty - 1] = {sizeof empty - 1};
    memcpy(header + 8, empty, sizeof empty - 1);
    write_config(sharded);
    write_weights(sharded, "a.safetensors");
    write_file(sharded, "b.safetensors", header, sizeof header);
    write_file(sharded, "c.bin", pickle, sizeof pickle - 1);
}

static void remove_folders(void)
{
    static const char *const names[] = {"config.json",   "model.safetensors", "model.safetensors.index.json",
                                        "a.safetensors", "b.safetensors",     "c.bin"};
    const char *const all[] = {folder, sharded, texts};
    for (size_t i = 0; i < SYI_COUNT(all); i++) {
        char path[80];
        for (size_t k = 0; k < SYI_COUNT(names) + SYI_COUNT(beside); k++) {
            const char *name = k < SYI_COUNT(names) ? names[k] : beside[k - SYI_COUNT(names)];
            snprintf(path, sizeof path, "%s/%s", all[i], name);
            unlink(path);
        }
        rmdir(all[i]);
    }
}

static void make_folders(void)
{
    strcpy(folder, FOLDER);
    strcpy(sharded, FOLDER);
    strcpy(texts, FOLDER);
    FUZZ_REQUIRE(mkdtemp(folder) && mkdtemp(sharded) && mkdtemp(texts));
    FUZZ_REQUIRE(!atexit(remove_folders));
    write_weights(folder, "model.safetensors");
    write_weights(texts, "model.safetensors");
    write_config(texts);
    write_shards();
}

static int has(const uint8_t *data, size_t size, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= size; i++)
        if (!memcmp(data + i, word, n)) return 1;
    return 0;
}

/* Puts the input into the files that it is for; their folder. */
static const char *place(const uint8_t *data, size_t size)
{
    if (has(data, size, "\"weight_map\"")) {
        write_file(sharded, "model.safetensors.index.json", data, size);
        return sharded;
    }
    if (has(data, size, "\"model_type\"")) {
        write_file(folder, "config.json", data, size);
        return folder;
    }
    for (size_t i = 0; i < SYI_COUNT(beside); i++) write_file(texts, beside[i], data, size);
    return texts;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct syi_import import;
    struct sy_error err = {0};
    if (!folder[0]) make_folders();
    const char *from = place(data, size);
    memset(&import, 0, sizeof import);
    FUZZ_REQUIRE(syi_config_defaults(&import.config, NULL) == SY_OK);
    int status = syi_import_open(&import, from, "hf", &err);
    if (!status) status = syi_import_check(&import, &err);
    FUZZ_REQUIRE(status && err.code == status && err.text[0]);
    syi_import_close(&import);
    return 0;
}
