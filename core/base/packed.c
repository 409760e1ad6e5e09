/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a packed model's container: its header, its checksums, and the small files in it. A file may come from
 * anywhere: what is used of it was compared with its checksum. */
#include "config.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/held_files.h"
#include "base/packed.h"

/* What follows the 8 bytes of the header's length: the writer puts the format first. */
static const char beginning[] = "{\"__metadata__\":{\"format\":\"switchyard packed model ";

int syi_packed_is(const char *path)
{
    char text[8 + sizeof beginning];
    struct stat info;
    size_t n = 0, need = 8 + sizeof beginning - 1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a named pipe must not block */
    if (fd < 0) return 0;
    int is = !fstat(fd, &info) && S_ISREG(info.st_mode) && !syi_read_at(fd, path, 0, text, need, &n, NULL) &&
             n == need && !memcmp(text + 8, beginning, sizeof beginning - 1);
    close(fd);
    return is;
}

int syi_packed_refuse(const char *path, struct sy_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return syi_error_system(err, "cannot open %s", path);
    close(fd);
    return syi_error(
        err, SY_EFORMAT,
        "%s is no packed model, or it is empty, cut short or damaged at its beginning: give a file that "
        "`switchyard pack` made, or a run directory",
        path);
}

/* ---- checksums ---- */

static int is_sums(const struct syi_safetensors_tensor *tensor)
{
    return !strcmp(tensor->name, SYI_PACKED_CHECKSUMS);
}

uint32_t syi_packed_header_sum(const struct syi_safetensors *planned)
{
    return syi_crc32c(0, planned->header_text, (size_t)planned->data_start);
}

static int damaged(const struct syi_packed *p, const char *part, struct sy_error *err)
{
    return syi_error(err, SY_EFORMAT,
                     "%s is damaged: the checksum of its %s is another one than it was written with; make it "
                     "again with `switchyard pack`",
                     p->file.path, part);
}

static int check_header(const struct syi_packed *p, uint32_t expected, struct sy_error *err)
{
    size_t n = (size_t)p->file.data_start, got;
    char *text = syi_alloc(n, err);
    if (!text) return SY_ENOMEM;
    int status = syi_read_at(p->file.fd, p->file.path, 0, text, n, &got, err);
    if (!status && (got != n || syi_crc32c(0, text, n) != expected)) status = damaged(p, "header", err);
    syi_free(text);
    return status;
}

static int check_tensor(const struct syi_packed *p, size_t i, char *chunk, size_t bytes, struct sy_error *err)
{
    const struct syi_safetensors_tensor *tensor = &p->file.tensors[i];
    uint32_t sum = 0;
    if (is_sums(tensor)) return SY_OK; /* what it holds is compared with the others */
    for (uint64_t at = 0; at < tensor->bytes; at += bytes) {
        size_t part = tensor->bytes - at < bytes ? (size_t)(tensor->bytes - at) : bytes;
        int status = syi_safetensors_read(&p->file, tensor, at, chunk, part, err);
        if (status) return status;
        sum = syi_crc32c(sum, chunk, part);
    }
    return sum == p->sum[i] ? SY_OK : damaged(p, tensor->name, err);
}

int syi_packed_check(const struct syi_packed *p, struct sy_error *err)
{
    enum { CHUNK = 1 << 18 };
    char *chunk = syi_alloc(CHUNK, err);
    int status = chunk ? SY_OK : SY_ENOMEM;
    for (size_t i = 0; i < p->file.n_tensors && !status; i++) status = check_tensor(p, i, chunk, CHUNK, err);
    syi_free(chunk);
    return status;
}

/* ---- opening ---- */

static int read_sums(struct syi_packed *p, struct sy_error *err)
{
    const struct syi_safetensors_tensor *sums = syi_safetensors_find(&p->file, SYI_PACKED_CHECKSUMS);
    size_t n = p->file.n_tensors;
    if (!sums || sums->dtype != SYI_SAFETENSORS_U32 || sums->bytes != n * sizeof *p->sum)
        return syi_error(err, SY_EFORMAT, "%s has no checksums of its %zu tensors: it is no packed model",
                         p->file.path, n);
    p->sum = syi_alloc((size_t)sums->bytes, err);
    int status =
        p->sum ? syi_safetensors_read(&p->file, sums, 0, p->sum, (size_t)sums->bytes, err) : SY_ENOMEM;
    return status ? status : check_header(p, p->sum[sums - p->file.tensors], err);
}

static int read_facts(struct syi_packed *p, struct sy_error *err)
{
    const char *step = syi_safetensors_metadata(&p->file, "step"),
               *format = syi_safetensors_metadata(&p->file, "format");
    p->weights_sha256 = syi_safetensors_metadata(&p->file, "weights_sha256");
    if (!format || strcmp(format, SYI_PACKED_FORMAT))
        return syi_error(
            err, SY_EUNSUPPORTED,
            "%s is no packed model that this switchyard (%s) reads: its format is \"%.80s\", not \"%s\"",
            p->file.path, sy_version(), format ? format : "", SYI_PACKED_FORMAT);
    if (!step || !*step || strlen(step) > 18 || step[strspn(step, "0123456789")] || !p->weights_sha256 ||
        strlen(p->weights_sha256) != 64)
        return syi_error(err, SY_EFORMAT,
                         "%s lacks the step and the hash of its weights: it is no packed model",
                         p->file.path);
    p->step = strtoll(step, NULL, 10);
    return SY_OK;
}

int syi_packed_open(struct syi_packed *p, const char *path, struct sy_error *err)
{
    memset(p, 0, sizeof *p);
    p->file.fd = -1;
    int status = syi_safetensors_open(&p->file, path, err);
    if (!status) status = read_sums(p, err);
    return status ? status : read_facts(p, err);
}

void syi_packed_close(struct syi_packed *p)
{
    syi_safetensors_close(&p->file);
    syi_free(p->sum);
    p->sum = NULL;
}

/* ---- small files ---- */

enum { HELD_NAME = SYI_PACKED_NAME + SYI_CONFIG_STRING };

int syi_packed_read(const struct syi_packed *p, const char *name, char **text, size_t *bytes,
                    struct sy_error *err)
{
    const struct syi_safetensors_tensor *tensor = syi_safetensors_find(&p->file, name);
    *text = NULL;
    if (!tensor || tensor->dtype != SYI_SAFETENSORS_U8)
        return syi_error(err, SY_EFORMAT, "%s has no %s: it is no packed model", p->file.path, name);
    *bytes = (size_t)tensor->bytes;
    char *data = syi_alloc(*bytes + 1, err);
    if (!data) return SY_ENOMEM;
    int status = syi_safetensors_read(&p->file, tensor, 0, data, *bytes, err);
    if (!status && syi_crc32c(0, data, *bytes) != p->sum[tensor - p->file.tensors])
        status = damaged(p, name, err);
    if (status)
        syi_free(data);
    else
        *text = data;
    return status;
}

void syi_packed_vocabulary_name(const struct syi_vocabulary_part *part, char name[SYI_PACKED_NAME])
{
    snprintf(name, SYI_PACKED_NAME, "vocabulary%s%s", *part->name_of_part ? "." : "", part->name_of_part);
}

/* A packed model holds several vocabularies by one path. */
static void held_name(const struct syi_vocabulary_part *part, char held[HELD_NAME])
{
    char name[SYI_PACKED_NAME];
    syi_packed_vocabulary_name(part, name);
    snprintf(held, HELD_NAME, "%s %s", name, part->file);
}

int syi_packed_hold_vocabulary(const struct syi_vocabulary_part *part, const char *text, size_t bytes,
                               struct sy_error *err)
{
    char held[HELD_NAME];
    held_name(part, held);
    return syi_held_add(held, text, bytes, err);
}

/* *text NULL: it is not held. */
static int read_held(const struct syi_vocabulary_part *part, char **text, size_t *bytes, struct sy_error *err)
{
    char held[HELD_NAME];
    const char *found;
    *text = NULL;
    held_name(part, held);
    if (!syi_held_find(held, &found, bytes)) return SY_OK;
    *text = syi_alloc(*bytes + 1, err);
    if (!*text) return SY_ENOMEM;
    memcpy(*text, found, *bytes);
    return SY_OK;
}

int syi_packed_read_vocabulary(const struct syi_vocabulary_part *part, char **text, size_t *bytes,
                               struct sy_error *err)
{
    struct syi_packed packed;
    char name[SYI_PACKED_NAME];
    int status = read_held(part, text, bytes, err);
    if (status || *text) return status;
    if (!syi_packed_is(part->file)) return syi_file_read(part->file, text, bytes, err);
    syi_packed_vocabulary_name(part, name);
    status = syi_packed_open(&packed, part->file, err);
    if (!status) status = syi_packed_read(&packed, name, text, bytes, err);
    syi_packed_close(&packed);
    return status;
}

static int parse_config(const char *path, const char *text, size_t bytes, struct syi_config *config,
                        struct sy_error *err)
{
    if (strlen(path) >= SYI_CONFIG_STRING)
        return syi_error(err, SY_EINVAL, "the path is too long (%zu bytes): %.64s...", strlen(path), path);
    int status = syi_config_defaults(config, err);
    if (!status) status = syi_config_load_text(config, path, text, bytes, err);
    for (int i = 0; i < config->vocabulary.n && !status; i++)
        if (*config->vocabulary.part[i].file) strcpy(config->vocabulary.part[i].file, path);
    return status;
}

static int is_int8(const struct syi_packed *p)
{
    const char *weights = syi_safetensors_metadata(&p->file, "weights");
    return weights && !strcmp(weights, syi_safetensors_dtype_name(SYI_SAFETENSORS_I8));
}

int syi_packed_config(const char *path, struct syi_config *config, struct sy_error *err)
{
    struct syi_packed packed;
    char *text = NULL;
    size_t bytes = 0;
    int status = syi_packed_open(&packed, path, err);
    if (!status) status = syi_packed_read(&packed, SYI_PACKED_CONFIG, &text, &bytes, err);
    if (!status) status = parse_config(path, text, bytes, config, err);
    if (!status && is_int8(&packed)) config->model.weights = SYI_WEIGHTS_INT8;
    syi_free(text);
    syi_packed_close(&packed);
    return status;
}
