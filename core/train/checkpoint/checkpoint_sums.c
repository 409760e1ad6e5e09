/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a checkpoint and their checksums: of the header and of the data of each file, of the data of each tensor. */
#include "config.h"

#include <string.h>

#include "train/checkpoint/checkpoint_parts.h"

const struct syi_checkpoint_file syi_checkpoint_file[SYI_CHECKPOINT_FILES] = {
    {"params.safetensors", SYI_PARAM}, {"state.safetensors", SYI_STATE}};

void syi_checkpoint_sums_free(struct syi_checkpoint_sums *sums)
{
    for (size_t i = 0; i < sums->n; i++) syi_free(sums->sum[i].name);
    syi_free(sums->sum);
    memset(sums, 0, sizeof *sums);
}

/* ---- making them ---- */

static int add_sums(const struct syi_safetensors *file, const uint32_t *crc, struct syi_checkpoint_sums *sums,
                    struct sy_error *err)
{
    int status = SYI_GROW(sums->sum, sums->capacity, sums->n + file->n_tensors, err);
    for (size_t i = 0; i < file->n_tensors && !status; i++) {
        char *name = syi_strdup(file->tensors[i].name, err);
        if (!name) return SY_ENOMEM;
        sums->sum[sums->n++] = (struct syi_checkpoint_sum){name, crc[i]};
    }
    return status;
}

static int hash(const struct syi_safetensors *file, char data[65], char header[65],
                struct syi_checkpoint_sums *sums, struct sy_error *err)
{
    uint32_t *crc = syi_alloc(file->n_tensors * sizeof *crc, err);
    int status = crc ? syi_safetensors_hash(file, data, crc, err) : SY_ENOMEM;
    if (!status) status = syi_safetensors_hash_header(file, header, err);
    if (!status) status = add_sums(file, crc, sums, err);
    syi_free(crc);
    return status;
}

int syi_checkpoint_hash(const char *folder, int i, struct syi_gate *written, struct syi_checkpoint_meta *meta,
                        struct syi_checkpoint_sums *sums, struct sy_error *err)
{
    char *const data[] = {meta->params_sha256, meta->state_sha256};
    char *const header[] = {meta->params_header_sha256, meta->state_header_sha256};
    struct syi_safetensors file = {.fd = -1};
    char *path = syi_format("%s/%s", folder, syi_checkpoint_file[i].name);
    int status = path ? syi_safetensors_open(&file, path, err) : syi_error(err, SY_ENOMEM, "out of memory");
    file.written = written;
    if (!status) status = hash(&file, data[i], header[i], sums, err);
    syi_safetensors_close(&file);
    syi_free(path);
    return status;
}

/* ---- comparing ---- */

static const struct syi_checkpoint_sum *find(const struct syi_checkpoint_sums *sums, const char *name)
{
    for (size_t i = 0; i < sums->n; i++)
        if (!strcmp(sums->sum[i].name, name)) return &sums->sum[i];
    return NULL;
}

/* "; damaged: NAME, NAME and 3 more" of the tensors whose sums differ. */
static void print_damaged(const struct syi_safetensors *file, const uint32_t *crc,
                          const struct syi_checkpoint_sums *sums, char *text, size_t bytes)
{
    enum { MOST = 3 };
    size_t n = 0, used = 0;
    for (size_t i = 0; i < file->n_tensors && used < bytes; i++) {
        const struct syi_checkpoint_sum *sum = find(sums, file->tensors[i].name);
        if (!sum || sum->crc == crc[i] || n++ >= MOST) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", n == 1 ? "; damaged: " : ", ",
                                 file->tensors[i].name);
    }
    if (n > MOST && used < bytes) snprintf(text + used, bytes - used, " and %zu more", n - MOST);
}

static int differs(const struct syi_safetensors *file, const char *part, const char *hex,
                   const char *expected, const char *damaged, struct sy_error *err)
{
    return syi_error(err, SY_EFORMAT,
                     "%s is corrupt: the SHA-256 of its %s is %.16s..., meta.json has %.16s...%s", file->path,
                     part, hex, expected, damaged);
}

static int check_header(const struct syi_safetensors *file, const char *expected, struct sy_error *err)
{
    char hex[65];
    if (!expected[0]) return SY_OK; /* not known */
    int status = syi_safetensors_hash_header(file, hex, err);
    return status || !strcmp(hex, expected) ? status : differs(file, "header", hex, expected, "", err);
}

static int check_data(const struct syi_safetensors *file, const char *expected,
                      const struct syi_checkpoint_sums *sums, struct sy_error *err)
{
    char hex[65], damaged[320] = "";
    uint32_t *crc = syi_alloc(file->n_tensors * sizeof *crc, err);
    int status = crc ? syi_safetensors_hash(file, hex, crc, err) : SY_ENOMEM;
    if (!status) print_damaged(file, crc, sums, damaged, sizeof damaged);
    syi_free(crc);
    if (status) return status;
    if (strcmp(hex, expected)) return differs(file, "data", hex, expected, damaged, err);
    if (!damaged[0]) return SY_OK;
    return syi_error(err, SY_EFORMAT, "%s is whole, but meta.json beside it has other sums of its tensors%s",
                     file->path, damaged);
}

int syi_checkpoint_check_file(const char *folder, const struct syi_safetensors *file, int i,
                              const struct syi_checkpoint_meta *meta, struct sy_error *err)
{
    const char *const data[] = {meta->params_sha256, meta->state_sha256};
    const char *const header[] = {meta->params_header_sha256, meta->state_header_sha256};
    struct syi_checkpoint_sums sums = {0};
    int status = check_header(file, header[i], err);
    if (!status) status = syi_checkpoint_sums_read(folder, &sums, err);
    if (!status) status = check_data(file, data[i], &sums, err);
    syi_checkpoint_sums_free(&sums);
    return status;
}
