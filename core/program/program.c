/* SPDX-License-Identifier: Apache-2.0 */
/* The arrays of a program: making, copying, growing, and scopes. Knows nothing of what ops mean. */
#include "config.h"

#include <string.h>

#include "base/bf16.h"
#include "program/program.h"

static const char *const axis_names[] = {
#define AXIS_NAME(NAME, name) #name,
    SYI_AXIS_MAP(AXIS_NAME)
#undef AXIS_NAME
};

const char *syi_axis_name(enum syi_axis axis)
{
    return (unsigned)axis < SYI_AXIS_COUNT ? axis_names[axis] : "?";
}

size_t syi_dtype_bytes(enum sy_dtype dtype)
{
    static const uint8_t bytes[SY_DTYPE_COUNT] = {4, 2, 8, 4, 8, 1};
    return bytes[dtype];
}

int syi_is_float(enum sy_dtype dtype)
{
    return dtype == SY_F32 || dtype == SY_BF16 || dtype == SY_F64;
}

int64_t syi_bound_count(const struct sy_tensor *tensor)
{
    int64_t n = 1;
    for (int d = 0; d < tensor->rank; d++) n *= tensor->dim[d];
    return n;
}

double syi_bound_value(const struct sy_tensor *tensor, int64_t i)
{
    switch (tensor->dtype) {
    case SY_F32: return (double)((const float *)tensor->data)[i];
    case SY_F64: return ((const double *)tensor->data)[i];
    case SY_BF16: return (double)syi_bf16_to_float(((const uint16_t *)tensor->data)[i]);
    case SY_I32: return ((const int32_t *)tensor->data)[i];
    case SY_I8: return ((const int8_t *)tensor->data)[i];
    default: return (double)((const int64_t *)tensor->data)[i];
    }
}

const char *syi_dtype_name(enum sy_dtype dtype)
{
    static const char *const names[SY_DTYPE_COUNT] = {"f32", "bf16", "f64", "i32", "i64", "i8"};
    return (unsigned)dtype < SY_DTYPE_COUNT ? names[dtype] : "?";
}

enum syi_segment syi_kind_segment(enum syi_kind kind)
{
    switch (kind) {
    case SYI_PARAM:
    case SYI_STATE: return SYI_PERSIST;
    case SYI_INPUT:
    case SYI_OUTPUT: return SYI_IO;
    case SYI_CARRY: return SYI_CARRY_SEGMENT;
    default: return SYI_SCRATCH;
    }
}

int64_t syi_tensor_count(const struct syi_tensor *tensor)
{
    int64_t n = 1;
    for (int i = 0; i < tensor->rank; i++) n *= tensor->dim[i];
    return n;
}

int syi_program_new(const char *title, struct syi_program **program, struct sy_error *err)
{
    struct syi_program *p = syi_alloc(sizeof *p, err);
    if (!p) return SY_ENOMEM;
    int status = SYI_GROW(p->names, p->cap_names, 1, err);
    if (status) {
        syi_free(p);
        return status;
    }
    p->n_names = 1; /* offset 0 is the empty name */
    for (int i = 0; i < SYI_AXIS_COUNT; i++) p->leaf_count[i] = 1;
    snprintf(p->title, sizeof p->title, "%s", title);
    *program = p;
    return SY_OK;
}

void syi_program_free(struct syi_program *program)
{
    if (!program) return;
    syi_free(program->tensor);
    syi_free(program->op);
    syi_free(program->attrs);
    syi_free(program->names);
    syi_free(program->name_entry);
    syi_index_free(&program->name_index);
    syi_free(program);
}

static int copy_array(void **to, size_t *capacity, const void *from, size_t n, size_t size,
                      struct sy_error *err)
{
    *to = NULL;
    *capacity = 0;
    int status = syi_grow(to, capacity, n ? n : 1, size, err);
    if (!status && n) memcpy(*to, from, n * size);
    return status;
}
#define COPY_ARRAY(to, from, array, n, cap, err)                                                             \
    copy_array((void **)&(to)->array, &(to)->cap, (from)->array, (from)->n, sizeof *(from)->array, err)

int syi_program_copy(const struct syi_program *from, struct syi_program **to, struct sy_error *err)
{
    struct syi_program *p = syi_alloc(sizeof *p, err);
    if (!p) return SY_ENOMEM;
    *p = *from;
    p->tensor = NULL, p->op = NULL, p->attrs = NULL, p->names = NULL, p->name_entry = NULL;
    memset(&p->name_index, 0, sizeof p->name_index);
    int status = COPY_ARRAY(p, from, tensor, n_tensors, cap_tensors, err);
    if (!status) status = COPY_ARRAY(p, from, op, n_ops, cap_ops, err);
    if (!status) status = COPY_ARRAY(p, from, attrs, n_attrs, cap_attrs, err);
    if (!status) status = COPY_ARRAY(p, from, names, n_names, cap_names, err);
    if (!status) status = COPY_ARRAY(p, from, name_entry, name_index.n, cap_entries, err);
    if (!status) status = syi_index_copy(&from->name_index, &p->name_index, err);
    if (status) {
        syi_program_free(p);
        return status;
    }
    *to = p;
    return SY_OK;
}

int syi_program_status(const struct syi_program *program, struct sy_error *err)
{
    if (!program->status) return SY_OK;
    return syi_error(err, program->status, "%s", program->error.text);
}

int syi_program_fail(struct syi_program *program, int status, const char *format, ...)
{
    if (program->status) return -1;
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    program->status = syi_error(&program->error, status, "%s: %s (recorded at %s:%u)", program->title, text,
                                syi_program_name(program, program->file), program->line);
    return -1;
}

/* ---- names: each is kept once, and found by its hash ---- */

const char *syi_program_name(const struct syi_program *program, uint32_t name)
{
    return program->names + (name < program->n_names ? name : 0);
}

static const char *entry_text(const void *owner, uint32_t id)
{
    const struct syi_program *program = owner;
    return program->names + program->name_entry[id].text;
}

static struct syi_name *find(const struct syi_program *program, const char *text)
{
    int64_t id = syi_index_find(&program->name_index, entry_text, program, text);
    return id < 0 ? NULL : &program->name_entry[id];
}

static int add(struct syi_program *program, const char *text, size_t bytes)
{
    struct sy_error err = {0};
    size_t id = program->name_index.n;
    if (program->n_names + bytes > UINT32_MAX) return SY_ENOMEM;
    int status = SYI_GROW(program->names, program->cap_names, program->n_names + bytes, &err);
    if (!status) status = SYI_GROW(program->name_entry, program->cap_entries, id + 1, &err);
    if (!status) status = syi_index_add(&program->name_index, text, (uint32_t)id, &err);
    if (status) return status;
    program->name_entry[id] = (struct syi_name){(uint32_t)program->n_names, -1};
    memcpy(program->names + program->n_names, text, bytes);
    program->n_names += bytes;
    return SY_OK;
}

/* The entry of a name, new if need be; NULL: the recording fails. */
static struct syi_name *entry_of(struct syi_program *program, const char *text)
{
    struct syi_name *there = find(program, text);
    if (there) return there;
    if (!add(program, text, strlen(text) + 1)) return &program->name_entry[program->name_index.n - 1];
    syi_program_fail(program, SY_ENOMEM, "out of memory for names");
    return NULL;
}

uint32_t syi_program_intern(struct syi_program *program, const char *text)
{
    if (!text || !*text) return 0;
    const struct syi_name *name = entry_of(program, text);
    return name ? name->text : 0;
}

int syi_program_find(const struct syi_program *program, const char *name)
{
    const struct syi_name *there = find(program, name);
    return there ? there->tensor : -1;
}

void syi_tensor_rename(struct syi_program *program, int tensor, const char *text)
{
    struct syi_name *name = *text ? entry_of(program, text) : NULL;
    if (!name) return;
    program->tensor[tensor].name = name->text;
    if (name->tensor < 0 || name->tensor > tensor) name->tensor = tensor;
}

/* ---- tensors and ops ---- */

const void *syi_program_attr(const struct syi_program *program, const struct syi_op *op)
{
    return op->attr_bytes ? program->attrs + op->attr : NULL;
}

/* Counts the elements of a new tensor; 0: the recording fails, with the tensor and its extents. */
static int count_elements(struct syi_program *program, const char *name, int rank, const int64_t *dim)
{
    char shape[32 * SY_MAX_DIMS] = "";
    uint64_t n = 1;
    int used = 0, bad = 0;
    for (int i = 0; i < rank; i++) {
        bad |= dim[i] <= 0;
        n = bad ? 0 : syi_mul_u64(n, (uint64_t)dim[i]);
        used +=
            snprintf(shape + used, sizeof shape - (size_t)used, "%s%lld", i ? ", " : "", (long long)dim[i]);
    }
    name = name ? name : "(temporary)";
    if (bad) {
        syi_program_fail(program, SY_EINVAL, "tensor %s [%s]: an extent is below 1", name, shape);
    } else if (n > SYI_MAX_ELEMENTS) {
        syi_program_fail(program, SY_EINVAL,
                         "tensor %s [%s] has more than 2^46 elements: take a smaller model or batch", name,
                         shape);
    } else {
        program->elements += n;
        if (program->elements > SYI_MAX_PROGRAM_ELEMENTS)
            syi_program_fail(program, SY_EINVAL,
                             "with tensor %s [%s] the program has more than 2^58 elements: take a smaller "
                             "model or batch",
                             name, shape);
    }
    return !program->status;
}

int syi_tensor_add(struct syi_program *program, const char *name, enum syi_kind kind, enum sy_dtype dtype,
                   int rank, const int64_t *dim, const uint8_t *axis)
{
    if (program->status || !count_elements(program, name, rank, dim)) return -1;
    struct sy_error err = {0};
    if (SYI_GROW(program->tensor, program->cap_tensors, program->n_tensors + 1, &err))
        return syi_program_fail(program, SY_ENOMEM, "out of memory for tensors");
    struct syi_tensor *t = &program->tensor[program->n_tensors];
    memset(t, 0, sizeof *t);
    t->kind = (uint8_t)kind;
    t->dtype = (uint8_t)dtype;
    t->rank = (uint8_t)rank;
    for (int i = 0; i < SY_MAX_DIMS; i++) {
        t->dim[i] = i < rank ? dim[i] : 1;
        t->axis[i] = i < rank && axis ? axis[i] : SYI_AXIS_NONE;
    }
    int tensor = (int)program->n_tensors++;
    if (name) syi_tensor_rename(program, tensor, name);
    return program->status ? -1 : tensor;
}

int syi_attr_new(struct syi_program *program, struct syi_op *op, size_t bytes, void **attr,
                 struct sy_error *err)
{
    size_t padded = (bytes + 7) & ~(size_t)7;
    /* 8 more: a program without attributes has an address for them, too. */
    int status = SYI_GROW(program->attrs, program->cap_attrs, program->n_attrs + padded + 8, err);
    if (status) return status;
    op->attr = (uint32_t)program->n_attrs;
    op->attr_bytes = (uint32_t)bytes;
    *attr = memset(program->attrs + program->n_attrs, 0, padded);
    program->n_attrs += padded;
    return SY_OK;
}

int syi_op_add(struct syi_program *program, int op, int n_in, const int *in, int n_out, const int *out,
               const void *attr, size_t attr_bytes)
{
    if (program->status) return program->status;
    struct syi_op made = {.op = (uint16_t)op};
    struct sy_error err = {0};
    void *to;
    if (SYI_GROW(program->op, program->cap_ops, program->n_ops + 1, &err) ||
        syi_attr_new(program, &made, attr_bytes, &to, &err)) {
        syi_program_fail(program, SY_ENOMEM, "out of memory for ops");
        return SY_ENOMEM;
    }
    if (attr_bytes) memcpy(to, attr, attr_bytes);
    struct syi_op *o = &program->op[program->n_ops++];
    *o = made;
    o->n_in = (uint8_t)n_in;
    o->n_out = (uint8_t)n_out;
    o->file = program->file;
    o->line = (uint16_t)program->line;
    o->layer = program->layer;
    for (int i = 0; i < SY_MAX_IN; i++) o->in[i] = i < n_in ? in[i] : -1;
    for (int i = 0; i < SY_MAX_OUT; i++) o->out[i] = i < n_out ? out[i] : -1;
    return SY_OK;
}

void syi_program_remove(struct syi_program *program, const uint8_t *gone)
{
    size_t kept = 0;
    for (size_t i = 0; i < program->n_ops; i++)
        if (!gone[i]) program->op[kept++] = program->op[i];
    program->n_ops = kept;
}

void syi_scope_push(struct syi_program *program, const char *format, ...)
{
    char part[128], path[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(part, sizeof part, format, arguments);
    va_end(arguments);
    const char *scope = syi_program_name(program, program->layer);
    snprintf(path, sizeof path, "%s%s%s", scope, *scope ? "/" : "", part);
    program->layer = syi_program_intern(program, path);
}

void syi_scope_pop(struct syi_program *program)
{
    char path[512];
    snprintf(path, sizeof path, "%s", syi_program_name(program, program->layer));
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
    else
        path[0] = '\0';
    program->layer = syi_program_intern(program, path);
}
