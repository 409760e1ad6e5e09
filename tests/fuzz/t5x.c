/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a T5X checkpoint on any bytes: opening takes it or says why not, and every tensor that it promises can be
 * read. Arrays stand in the index; there are no folders. */
#include "config.h"

#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "import/import.h"

static void read_all(struct syi_import *import)
{
    for (size_t i = 0; i < import->n; i++) {
        const struct syi_import_tensor *tensor = &import->tensors[i];
        struct sy_error err = {0};
        uint64_t bytes = syi_safetensors_element_bytes(tensor->dtype);
        for (int d = 0; d < tensor->rank; d++) bytes = syi_mul_u64(bytes, (uint64_t)tensor->dims[d]);
        void *data = syi_alloc((size_t)bytes, NULL);
        FUZZ_REQUIRE(data != NULL);
        FUZZ_REQUIRE(import->format->read(import, tensor, data, &err) == SY_OK);
        syi_free(data);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char folder[] = "/tmp/sy-fuzz-t5x-XXXXXX", file[64];
    struct syi_import *import = syi_alloc(sizeof *import, NULL);
    struct sy_error err = {0};
    FUZZ_REQUIRE(import && mkdtemp(folder) != NULL);
    snprintf(file, sizeof file, "%s/checkpoint", folder);
    FILE *out = fopen(file, "wb"); /* not synced: there are thousands */
    FUZZ_REQUIRE(out && fwrite(data, 1, size, out) == size && fclose(out) == 0);
    FUZZ_REQUIRE(syi_config_defaults(&import->config, &err) == SY_OK);
    if (syi_import_open(import, folder, "t5x", &err))
        FUZZ_REQUIRE(err.code && err.text[0]);
    else
        read_all(import);
    syi_import_close(import);
    syi_free(import);
    unlink(file);
    rmdir(folder);
    return 0;
}
