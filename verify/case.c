/* SPDX-License-Identifier: Apache-2.0 */
/* One case file: what it says about itself, and its tensors. The keys of its configuration are read in
 * config.c. A file may come from anywhere: it is read by the strict readers of safetensors and JSON, and what
 * they do not check is checked here. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "verify/verify.h"

enum { ALIGNMENT = 64 };        /* bytes, of each tensor's data */
enum { MOST_JSON = INT32_MAX }; /* bytes; the reader of JSON takes no more */

/* Copies a word that will be printed: nothing in it that a terminal would obey. */
static int copy_word(const struct verify_case *c, const char *what, const char *from, char *to, size_t bytes,
                     struct sy_error *err)
{
    if (!from || !*from) return syi_error(err, SY_EFORMAT, "%s: it has no %s: not a case", c->path, what);
    if (strlen(from) >= bytes)
        return syi_error(err, SY_EFORMAT, "%s: its %s is longer than %zu bytes", c->path, what, bytes - 1);
    for (size_t i = 0; from[i]; i++)
        if ((unsigned char)from[i] <= ' ' || (unsigned char)from[i] > '~')
            return syi_error(err, SY_EFORMAT, "%s: its %s has blanks or control characters", c->path, what);
    memcpy(to, from, strlen(from) + 1);
    return SY_OK;
}

/* A number at the start of a text: "3.63e-07 at grad/query/kernel". Absent: 0. */
static int parse_tolerance(const struct verify_case *c, const char *what, const char *text, double *value,
                           struct sy_error *err)
{
    const char *end;
    *value = 0;
    if (!text) return SY_OK;
    *value = syi_parse_double(text, &end);
    if (end == text || !isfinite(*value) || *value < 0)
        return syi_error(err, SY_EFORMAT, "%s: %s is no number from 0 on", c->path, what);
    return SY_OK;
}

static int set_bounds(struct verify_case *c, const char *rtol, const char *atol, const char *own,
                      struct sy_error *err)
{
    double largest;
    int status = parse_tolerance(c, "rtol", rtol, &c->rtol, err);
    if (!status) status = parse_tolerance(c, "atol", atol, &c->atol, err);
    if (!status) status = parse_tolerance(c, "f32_vs_f64_max_err", own, &largest, err);
    if (!status) c->bound = fmax(2e-5, 4 * largest);
    return status;
}

static int find_config(struct verify_case *c, uint32_t node, struct sy_error *err)
{
    if (c->json.nodes[node].kind != SYI_JSON_OBJECT)
        return syi_error(err, SY_EFORMAT, "%s: its configuration is no JSON object", c->path);
    c->config = node;
    c->known = syi_alloc(c->json.n_nodes, err);
    return c->known ? SY_OK : SY_ENOMEM;
}

/* ---- safetensors ---- */

static int open_safetensors(struct verify_case *c, struct sy_error *err)
{
    const struct syi_safetensors *f = &c->file;
    int status = syi_safetensors_open(&c->file, c->path, err);
    if (status) return status;
    const char *config = syi_safetensors_metadata(f, "config");
    status = copy_word(c, "kind", syi_safetensors_metadata(f, "kind"), c->kind, sizeof c->kind, err);
    if (!status)
        status = copy_word(c, "case", syi_safetensors_metadata(f, "case"), c->name, sizeof c->name, err);
    if (!status && !config) status = syi_error(err, SY_EFORMAT, "%s: it has no config", c->path);
    if (!status) status = syi_json_parse(&c->json, c->path, config, strlen(config), err);
    if (!status) status = find_config(c, 0, err);
    if (status) return status;
    return set_bounds(c, syi_safetensors_metadata(f, "rtol"), syi_safetensors_metadata(f, "atol"),
                      syi_safetensors_metadata(f, "f32_vs_f64_max_err"), err);
}

static size_t padded(uint64_t bytes)
{
    return (size_t)(bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Takes over the table; data is set later. */
static int describe(struct verify_case *c, const struct syi_safetensors_tensor *from,
                    struct verify_tensor *to, struct sy_error *err)
{
    if (from->dtype != SYI_SAFETENSORS_F32 && from->dtype != SYI_SAFETENSORS_I32 &&
        from->dtype != SYI_SAFETENSORS_U32)
        return syi_error(err, SY_EFORMAT, "%s: tensor %s is %s: cases hold F32, I32 and U32", c->path,
                         from->name, syi_safetensors_dtype_name(from->dtype));
    to->name = from->name;
    to->rank = from->rank;
    to->n = (int64_t)(from->bytes / 4);
    memcpy(to->dim, from->dims, sizeof to->dim);
    return SY_OK;
}

/* The header was checked against the file's size: the sum of all tensors' bytes is no more than that. */
int verify_case_load(struct verify_case *c, struct sy_error *err)
{
    size_t n = c->file.n_tensors, total = ALIGNMENT, at = 0;
    for (size_t i = 0; i < n; i++) total += padded(c->file.tensors[i].bytes);
    c->tensor = syi_alloc((n + 1) * sizeof *c->tensor, err);
    c->data = syi_alloc(total, err);
    if (!c->tensor || !c->data) return SY_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct syi_safetensors_tensor *from = &c->file.tensors[i];
        struct verify_tensor *to = &c->tensor[i];
        void *data = (char *)c->data + at;
        int status = describe(c, from, to, err);
        if (!status) status = syi_safetensors_read(&c->file, from, 0, data, (size_t)from->bytes, err);
        if (status) return status;
        if (from->dtype == SYI_SAFETENSORS_F32)
            to->real = data;
        else
            to->integer = data;
        at += padded(from->bytes);
    }
    c->n_tensors = n;
    return SY_OK;
}

/* ---- JSON: kind, case and configuration stand in one document; it has no tensors ---- */

static const char *member_text(const struct verify_case *c, const char *key)
{
    uint32_t node = syi_json_member(&c->json, 0, key);
    if (node == SYI_JSON_NONE || c->json.nodes[node].kind != SYI_JSON_STRING) return NULL;
    return syi_json_string(&c->json, node);
}

static int open_json(struct verify_case *c, struct sy_error *err)
{
    char *text = NULL;
    size_t bytes;
    int status = syi_file_read_regular(c->path, MOST_JSON, &text, &bytes, err);
    if (!status) status = syi_json_parse(&c->json, c->path, text, bytes, err);
    syi_free(text);
    if (status) return status;
    status = copy_word(c, "kind", member_text(c, "kind"), c->kind, sizeof c->kind, err);
    if (!status) status = copy_word(c, "case", member_text(c, "case"), c->name, sizeof c->name, err);
    if (status) return status;
    uint32_t config = syi_json_member(&c->json, 0, "config");
    if (config == SYI_JSON_NONE) return syi_error(err, SY_EFORMAT, "%s: it has no config", c->path);
    status = find_config(c, config, err);
    return status ? status : set_bounds(c, member_text(c, "rtol"), member_text(c, "atol"), NULL, err);
}

/* ---- a folder: expected.json, and tensors in expected.safetensors ---- */

int verify_case_open_folder(struct verify_case *c, const char *folder, struct sy_error *err)
{
    const char *name = strrchr(folder, '/');
    char *json = syi_format("%s/expected.json", folder), *text = NULL;
    size_t bytes;
    memset(c, 0, sizeof *c);
    c->file.fd = -1;
    int length = snprintf(c->path, sizeof c->path, "%s/expected.safetensors", folder);
    int status = json ? SY_OK : syi_error(err, SY_ENOMEM, "out of memory");
    if (!status && (length < 0 || (size_t)length >= sizeof c->path))
        status = syi_error(err, SY_EINVAL, "%.80s...: this path is too long", folder);
    if (!status) status = copy_word(c, "kind", "import", c->kind, sizeof c->kind, err);
    if (!status) status = copy_word(c, "name", name ? name + 1 : folder, c->name, sizeof c->name, err);
    if (!status) status = syi_file_read_regular(json, MOST_JSON, &text, &bytes, err);
    if (!status) status = syi_json_parse(&c->json, json, text, bytes, err);
    if (!status) status = find_config(c, 0, err);
    if (!status && !access(c->path, F_OK)) status = syi_safetensors_open(&c->file, c->path, err);
    if (!status)
        status =
            set_bounds(c, NULL, NULL,
                       c->file.fd < 0 ? NULL : syi_safetensors_metadata(&c->file, "f32_vs_f64_max_err"), err);
    syi_free(text);
    syi_free(json);
    return status;
}

/* ---- both ---- */

int verify_case_open(struct verify_case *c, const char *path, struct sy_error *err)
{
    memset(c, 0, sizeof *c);
    c->file.fd = -1;
    if (strlen(path) >= sizeof c->path)
        return syi_error(err, SY_EINVAL, "%.80s...: this path is too long", path);
    memcpy(c->path, path, strlen(path) + 1);
    c->bound = 2e-5;
    if (syi_ends_with(path, ".safetensors")) return open_safetensors(c, err);
    if (syi_ends_with(path, ".json")) return open_json(c, err);
    if (access(path, F_OK)) return syi_error(err, SY_ENOENT, "%s: %s", path, strerror(errno));
    return syi_error(err, SY_EINVAL, "%s: no case file: its name ends neither in .safetensors nor in .json",
                     path);
}

void verify_case_close(struct verify_case *c)
{
    syi_free(c->tensor);
    syi_free(c->data);
    syi_free(c->known);
    syi_json_free(&c->json);
    syi_safetensors_close(&c->file);
    c->tensor = NULL;
    c->n_tensors = 0;
    c->data = c->known = NULL;
}

const struct verify_tensor *verify_find(const struct verify_case *c, const char *name)
{
    for (size_t i = 0; i < c->n_tensors; i++)
        if (!strcmp(c->tensor[i].name, name)) return &c->tensor[i];
    return NULL;
}

int verify_need(const struct verify_case *c, const char *name, char type, int rank, const int64_t *dim,
                const struct verify_tensor **tensor, struct sy_error *err)
{
    const struct verify_tensor *t = *tensor = verify_find(c, name);
    if (!t) return syi_error(err, SY_EFORMAT, "there is no tensor %s", name);
    if (type == 'f' ? !t->real : !t->integer)
        return syi_error(err, SY_EFORMAT, "tensor %s is not %s", name, type == 'f' ? "F32" : "I32");
    if (t->rank != rank)
        return syi_error(err, SY_EFORMAT, "tensor %s has %d dims, not %d", name, t->rank, rank);
    for (int i = 0; i < rank; i++)
        if (dim[i] >= 0 && dim[i] != t->dim[i])
            return syi_error(err, SY_EFORMAT, "tensor %s: dim %d is %lld, not %lld", name, i,
                             (long long)t->dim[i], (long long)dim[i]);
    return SY_OK;
}
