/* SPDX-License-Identifier: Apache-2.0 */
/* The safetensors reader on any bytes: what it takes lies inside the file, in order, and can be read. Each
 * input is opened as it is, and with a header length that fits, so that changes of it do not end at the first
 * check. */
#include "config.h"

#include <string.h>
#include <unistd.h>

#include "base/safetensors.h"
#include "fuzz.h"

/* The middle half of every dimension must be what reading it row by row gives. */
static void read_block(const struct syi_safetensors *file, const struct syi_safetensors_tensor *t,
                       const uint8_t *whole, uint8_t *block)
{
    int64_t start[SYI_SAFETENSORS_RANK] = {0}, extent[SYI_SAFETENSORS_RANK] = {0}, at = 0, step;
    for (int d = 0; d < t->rank; d++) start[d] = t->dims[d] / 4, extent[d] = t->dims[d] - 2 * start[d];
    FUZZ_REQUIRE(syi_safetensors_read_block(file, t, start, extent, block, NULL) == SY_OK);
    if (!t->bytes) return;
    step = (int64_t)syi_safetensors_element_bytes(t->dtype);
    size_t element = (size_t)step;
    for (int d = t->rank - 1; d >= 0; step *= t->dims[d--]) at += start[d] * step;
    FUZZ_REQUIRE(!memcmp(block, whole + at, element));
    if (t->rank) extent[0] = t->dims[0] + 1;
    FUZZ_REQUIRE(!t->rank || syi_safetensors_read_block(file, t, start, extent, block, NULL) == SY_EINVAL);
}

static void read_tensor(const struct syi_safetensors *file, const struct syi_safetensors_tensor *t)
{
    FUZZ_REQUIRE(t->rank >= 0 && t->rank <= SYI_SAFETENSORS_RANK);
    FUZZ_REQUIRE(t->offset + t->bytes <= file->data_bytes);
    FUZZ_REQUIRE(syi_safetensors_find(file, t->name) == t);
    uint8_t *whole = malloc(t->bytes + 1), *block = malloc(t->bytes + 1);
    FUZZ_REQUIRE(whole && block);
    FUZZ_REQUIRE(syi_safetensors_read(file, t, 0, whole, t->bytes, NULL) == SY_OK);
    FUZZ_REQUIRE(syi_safetensors_read(file, t, t->bytes, block, 1, NULL) == SY_EINVAL);
    read_block(file, t, whole, block);
    free(whole);
    free(block);
}

static void look(const char *path)
{
    struct syi_safetensors file;
    struct sy_error err = {0};
    char hex[65];
    uint64_t bytes = 0;
    if (syi_safetensors_open(&file, path, &err)) {
        FUZZ_REQUIRE(err.code == SY_EFORMAT && err.text[0]);
        return;
    }
    for (size_t i = 0; i < file.n_tensors; i++) {
        read_tensor(&file, &file.tensors[i]);
        bytes += file.tensors[i].bytes;
        FUZZ_REQUIRE(!i || strcmp(file.tensors[i - 1].name, file.tensors[i].name) < 0);
    }
    FUZZ_REQUIRE(bytes == file.data_bytes);
    FUZZ_REQUIRE(syi_safetensors_hash(&file, hex, NULL, &err) == SY_OK && strlen(hex) == 64);
    syi_safetensors_metadata(&file, "format");
    FUZZ_REQUIRE(!syi_safetensors_find(&file, "\x01 no such name"));
    syi_safetensors_close(&file);
}

static void put(int fd, const uint8_t *data, size_t size)
{
    FUZZ_REQUIRE(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
}

/* A header that ends with the last brace, padded to 8 bytes by blanks or not, as it was. */
static void fit_length(int fd, const uint8_t *data, size_t size)
{
    uint8_t length[8] = {0};
    size_t end = size;
    while (end > 8 && data[end - 1] != '}') end--;
    if (end <= 8) return;
    while (end < size && data[end] == ' ') end++;
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)(end - 8) >> (8 * i));
    FUZZ_REQUIRE(pwrite(fd, length, 8, 0) == 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *file; /* without a name; stays open */
    char path[32];
    if (!file) file = tmpfile();
    FUZZ_REQUIRE(file);
    snprintf(path, sizeof path, "/dev/fd/%d", fileno(file));
    put(fileno(file), data, size);
    look(path);
    if (size > 8) fit_length(fileno(file), data, size);
    look(path);
    return 0;
}
