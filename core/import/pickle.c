/* SPDX-License-Identifier: Apache-2.0 */
/* The stack machine of pickle.h: opcodes. What the values mean is pickle_tensor.c's. */
#include "config.h"

#include <string.h>

#include "import/pickle_parts.h"

enum { MOST = 1 << 24 }; /* bytes of a pickle, and so of values, cells and entries */

/* ---- globals ---- */

static const struct {
    const char *module, *name;
    enum syi_pickle_global is;
    enum syi_safetensors_dtype dtype;
} globals[] = {
    {"collections", "OrderedDict", SYI_GLOBAL_ORDERED_DICT, 0},
    {"torch._utils", "_rebuild_tensor_v2", SYI_GLOBAL_REBUILD_TENSOR, 0},
    {"torch._utils", "_rebuild_parameter", SYI_GLOBAL_REBUILD_PARAMETER, 0},
    {"torch", "FloatStorage", SYI_GLOBAL_STORAGE, SYI_SAFETENSORS_F32},
    {"torch", "HalfStorage", SYI_GLOBAL_STORAGE, SYI_SAFETENSORS_F16},
    {"torch", "BFloat16Storage", SYI_GLOBAL_STORAGE, SYI_SAFETENSORS_BF16},
    {"torch", "DoubleStorage", SYI_GLOBAL_STORAGE, SYI_SAFETENSORS_F64},
    {"torch", "LongStorage", SYI_GLOBAL_STORAGE, SYI_SAFETENSORS_I64},
    {"torch", "IntStorage", SYI_GLOBAL_STORAGE, SYI_SAFETENSORS_I32},
};

enum syi_pickle_global syi_pickle_global_of(const struct syi_pickle_value *value)
{
    return value->kind == SYI_PICKLE_GLOBAL ? globals[value->global].is : SYI_GLOBAL_NONE;
}

enum syi_safetensors_dtype syi_pickle_dtype_of(const struct syi_pickle_value *value)
{
    return globals[value->global].dtype;
}

/* ---- the machine's parts ---- */

struct machine {
    struct syi_pickle *p;
    size_t at; /* next byte */
    struct sy_error *err;
};

static int malformed(const struct machine *m, const char *why)
{
    return syi_error(m->err, SY_EFORMAT, "%s: malformed pickle at byte %zu: %s", m->p->what, m->at, why);
}

static int push(struct machine *m, uint32_t value)
{
    struct syi_pickle *p = m->p;
    int status = SYI_GROW(p->stack, p->stack_capacity, p->n_stack + 1, m->err);
    if (!status) p->stack[p->n_stack++] = value;
    return status;
}

static int push_new(struct machine *m, struct syi_pickle_value value)
{
    struct syi_pickle *p = m->p;
    int status = SYI_GROW(p->value, p->value_capacity, p->n_values + 1, m->err);
    if (status) return status;
    p->value[p->n_values++] = value;
    return push(m, (uint32_t)(p->n_values - 1));
}

static int push_integer(struct machine *m, int kind, int64_t integer)
{
    return push_new(m, (struct syi_pickle_value){.kind = (uint8_t)kind, .integer = integer});
}

/* The lowest entry that opcodes may take: what is below the newest mark is not theirs. */
static size_t floor_of(const struct syi_pickle *p)
{
    return p->n_marks ? p->mark[p->n_marks - 1] : 0;
}

static int need(const struct machine *m, size_t entries)
{
    return m->p->n_stack - floor_of(m->p) >= entries ? SY_OK : malformed(m, "an opcode finds too few values");
}

/* Takes n bytes; NULL with an error when there are fewer. */
static const uint8_t *take(struct machine *m, uint64_t n)
{
    if (n > m->p->n_bytes - m->at) {
        malformed(m, "it ends in the middle");
        return NULL;
    }
    m->at += (size_t)n;
    return m->p->bytes + m->at - n;
}

/* An unsigned number of n bytes, little endian. */
static int take_number(struct machine *m, int n, uint64_t *number)
{
    const uint8_t *bytes = take(m, (uint64_t)n);
    *number = 0;
    if (!bytes) return SY_EFORMAT;
    for (int i = 0; i < n; i++) *number |= (uint64_t)bytes[i] << 8 * i;
    return SY_OK;
}

/* Adds stack entries [from, n_stack) to a container and takes them off. */
static int add_cells(struct machine *m, uint32_t container, size_t from)
{
    struct syi_pickle *p = m->p;
    int status = SYI_GROW(p->cell, p->cell_capacity, p->n_cells + 1 + p->n_stack - from, m->err);
    if (status) return status;
    if (!p->n_cells) p->n_cells = 1; /* number 0 is no cell */
    for (size_t i = from; i < p->n_stack; i++) {
        struct syi_pickle_value *to = &p->value[container];
        uint32_t cell = (uint32_t)p->n_cells++;
        p->cell[cell] = (struct syi_pickle_cell){.value = p->stack[i]};
        if (to->last) p->cell[to->last].next = cell;
        if (!to->first) to->first = cell;
        to->last = cell;
        to->n++;
    }
    p->n_stack = from;
    return SY_OK;
}

/* Takes the newest mark off; what stood above it is from *from on. */
static int pop_mark(struct machine *m, size_t *from)
{
    if (!m->p->n_marks) return malformed(m, "there is no mark");
    *from = m->p->mark[--m->p->n_marks];
    return SY_OK;
}

/* ---- opcodes ---- */

static int tuple_from(struct machine *m, size_t from)
{
    struct syi_pickle *p = m->p;
    int status = SYI_GROW(p->value, p->value_capacity, p->n_values + 1, m->err);
    if (status) return status;
    uint32_t tuple = (uint32_t)p->n_values++;
    p->value[tuple] = (struct syi_pickle_value){.kind = SYI_PICKLE_TUPLE};
    status = add_cells(m, tuple, from);
    return status ? status : push(m, tuple);
}

static int fixed_tuple(struct machine *m, size_t n)
{
    int status = need(m, n);
    return status ? status : tuple_from(m, m->p->n_stack - n);
}

static int marked_tuple(struct machine *m)
{
    size_t from = 0;
    int status = pop_mark(m, &from);
    return status ? status : tuple_from(m, from);
}

/* To the container below entry `from`; items alone, or in pairs. */
static int extend(struct machine *m, size_t from, int kind)
{
    struct syi_pickle *p = m->p;
    if (from <= floor_of(p)) return malformed(m, "items without a container");
    uint32_t container = p->stack[from - 1];
    if (p->value[container].kind != kind) return malformed(m, "items for what is no such container");
    if (kind == SYI_PICKLE_DICT && (p->n_stack - from) % 2) return malformed(m, "a key without a value");
    return add_cells(m, container, from);
}

static int extend_marked(struct machine *m, int kind)
{
    size_t from = 0;
    int status = pop_mark(m, &from);
    return status ? status : extend(m, from, kind);
}

static int extend_by(struct machine *m, size_t n, int kind)
{
    int status = need(m, n + 1);
    return status ? status : extend(m, m->p->n_stack - n, kind);
}

static int text(struct machine *m)
{
    uint64_t n;
    int status = take_number(m, 4, &n);
    size_t begin = m->at;
    if (status || !take(m, n)) return SY_EFORMAT;
    return push_new(
        m, (struct syi_pickle_value){.kind = SYI_PICKLE_TEXT, .n = (uint32_t)n, .integer = (int64_t)begin});
}

static int long_integer(struct machine *m)
{
    uint64_t n, number;
    int status = take_number(m, 1, &n);
    if (!status && n > 8) status = malformed(m, "an integer of more than 8 bytes");
    if (!status) status = take_number(m, (int)n, &number);
    if (status) return status;
    if (n && n < 8 && number >> (8 * n - 1) & 1) number |= UINT64_MAX << 8 * n; /* negative */
    return push_integer(m, SYI_PICKLE_INTEGER, (int64_t)number);
}

static int small_integer(struct machine *m, int bytes)
{
    uint64_t number;
    int status = take_number(m, bytes, &number);
    int64_t integer = bytes == 4 ? (int32_t)(uint32_t)number : (int64_t)number;
    return status ? status : push_integer(m, SYI_PICKLE_INTEGER, integer);
}

/* The line at hand without its end, which is passed over. */
static int take_line(struct machine *m, const char **line, size_t *length)
{
    const uint8_t *begin = m->p->bytes + m->at;
    const uint8_t *end = memchr(begin, '\n', m->p->n_bytes - m->at);
    if (!end) return malformed(m, "it ends in the middle");
    *line = (const char *)begin;
    *length = (size_t)(end - begin);
    m->at += *length + 1;
    return SY_OK;
}

static int is_word(const char *word, const char *line, size_t length)
{
    return strlen(word) == length && !memcmp(word, line, length);
}

/* What a message shows of a name that a file gives. */
static void clean(const char *line, size_t length, char shown[64])
{
    snprintf(shown, 64, "%.*s", (int)(length < 63 ? length : 63), line);
    for (char *c = shown; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
}

static int global(struct machine *m)
{
    const char *module, *name;
    size_t n_module, n_name;
    char shown_module[64], shown_name[64];
    int status = take_line(m, &module, &n_module);
    if (!status) status = take_line(m, &name, &n_name);
    if (status) return status;
    for (size_t i = 0; i < SYI_COUNT(globals); i++)
        if (is_word(globals[i].module, module, n_module) && is_word(globals[i].name, name, n_name))
            return push_new(m, (struct syi_pickle_value){.kind = SYI_PICKLE_GLOBAL, .global = (uint8_t)i});
    clean(module, n_module, shown_module);
    clean(name, n_name, shown_name);
    return syi_error(
        m->err, SY_EUNSUPPORTED,
        "%s: it asks for %s.%s, which is no part of a dictionary of weights: nothing of it is run",
        m->p->what, shown_module, shown_name);
}

/* A call of a global with a tuple: the result stands for both. */
static int reduce(struct machine *m)
{
    struct syi_pickle *p = m->p;
    int status = need(m, 2);
    if (status) return status;
    const struct syi_pickle_value arguments = p->value[p->stack[p->n_stack - 1]];
    enum syi_pickle_global called = syi_pickle_global_of(&p->value[p->stack[p->n_stack - 2]]);
    if (arguments.kind != SYI_PICKLE_TUPLE) return malformed(m, "a call without a tuple of arguments");
    p->n_stack -= 2;
    if (called == SYI_GLOBAL_ORDERED_DICT && !arguments.n)
        return push_new(m, (struct syi_pickle_value){.kind = SYI_PICKLE_DICT});
    if (called == SYI_GLOBAL_REBUILD_TENSOR && arguments.n >= 6)
        return push_new(m, (struct syi_pickle_value){
                               .kind = SYI_PICKLE_TENSOR, .first = arguments.first, .n = arguments.n});
    if (called == SYI_GLOBAL_REBUILD_PARAMETER && arguments.n >= 1) {
        uint32_t inner = p->cell[arguments.first].value;
        if (p->value[inner].kind == SYI_PICKLE_TENSOR) return push(m, inner);
    }
    return malformed(m, "a call with arguments that it does not take");
}

/* Attributes of a dictionary: nothing of the weights. */
static int build(struct machine *m)
{
    struct syi_pickle *p = m->p;
    int status = need(m, 2);
    if (!status && p->value[p->stack[p->n_stack - 2]].kind != SYI_PICKLE_DICT)
        status = malformed(m, "attributes of what is no dictionary");
    if (!status) p->n_stack--;
    return status;
}

static int persistent(struct machine *m)
{
    struct syi_pickle *p = m->p;
    int status = need(m, 1);
    if (status) return status;
    const struct syi_pickle_value id = p->value[p->stack[p->n_stack - 1]];
    if (id.kind != SYI_PICKLE_TUPLE || id.n < 5) return malformed(m, "a persistent id that is no storage");
    p->n_stack--;
    return push_new(m, (struct syi_pickle_value){.kind = SYI_PICKLE_STORAGE, .first = id.first, .n = id.n});
}

static int put(struct machine *m, int bytes)
{
    struct syi_pickle *p = m->p;
    uint64_t number;
    int status = take_number(m, bytes, &number);
    if (!status) status = need(m, 1);
    if (!status && number >= p->n_bytes) status = malformed(m, "a memo number that cannot be");
    if (!status) status = SYI_GROW(p->memo, p->memo_capacity, (size_t)number + 1, m->err);
    if (status) return status;
    if (p->n_memo <= number) p->n_memo = (size_t)number + 1;
    p->memo[number] = p->stack[p->n_stack - 1] + 1;
    return SY_OK;
}

static int get(struct machine *m, int bytes)
{
    uint64_t number;
    int status = take_number(m, bytes, &number);
    if (status) return status;
    if (number >= m->p->n_memo || !m->p->memo[number]) return malformed(m, "a memo number that is not there");
    return push(m, m->p->memo[number] - 1);
}

static int mark(struct machine *m)
{
    struct syi_pickle *p = m->p;
    int status = SYI_GROW(p->mark, p->mark_capacity, p->n_marks + 1, m->err);
    if (!status) p->mark[p->n_marks++] = (uint32_t)p->n_stack;
    return status;
}

static int protocol(struct machine *m)
{
    uint64_t number;
    int status = take_number(m, 1, &number);
    if (!status && number != 2)
        status = syi_error(m->err, SY_EUNSUPPORTED, "%s: pickle protocol %d: torch.save writes 2", m->p->what,
                           (int)number);
    return status;
}

static int run(struct machine *m, int opcode)
{
    switch (opcode) {
    case 0x80: return protocol(m);
    case '(': return mark(m);
    case 'N': return push_integer(m, SYI_PICKLE_NONE, 0);
    case 0x88: return push_integer(m, SYI_PICKLE_BOOL, 1);
    case 0x89: return push_integer(m, SYI_PICKLE_BOOL, 0);
    case 'K': return small_integer(m, 1);
    case 'M': return small_integer(m, 2);
    case 'J': return small_integer(m, 4);
    case 0x8a: return long_integer(m);
    case 'X': return text(m);
    case 'c': return global(m);
    case ')': return fixed_tuple(m, 0);
    case 0x85: return fixed_tuple(m, 1);
    case 0x86: return fixed_tuple(m, 2);
    case 0x87: return fixed_tuple(m, 3);
    case 't': return marked_tuple(m);
    case ']': return push_integer(m, SYI_PICKLE_LIST, 0);
    case '}': return push_integer(m, SYI_PICKLE_DICT, 0);
    case 'a': return extend_by(m, 1, SYI_PICKLE_LIST);
    case 'e': return extend_marked(m, SYI_PICKLE_LIST);
    case 's': return extend_by(m, 2, SYI_PICKLE_DICT);
    case 'u': return extend_marked(m, SYI_PICKLE_DICT);
    case 'R': return reduce(m);
    case 'b': return build(m);
    case 'Q': return persistent(m);
    case 'q': return put(m, 1);
    case 'r': return put(m, 4);
    case 'h': return get(m, 1);
    case 'j': return get(m, 4);
    default: break;
    }
    return syi_error(m->err, SY_EUNSUPPORTED,
                     "%s: pickle opcode 0x%02x at byte %zu is none that weights need", m->p->what,
                     (unsigned)opcode, m->at - 1);
}

int syi_pickle_read(struct syi_pickle *p, const char *what, const void *bytes, size_t n_bytes,
                    struct sy_error *err)
{
    struct machine m = {.p = p, .err = err};
    int status = SY_OK;
    memset(p, 0, sizeof *p);
    p->what = what;
    p->bytes = bytes;
    p->n_bytes = n_bytes < MOST ? n_bytes : MOST;
    while (!status) {
        const uint8_t *opcode = take(&m, 1);
        if (!opcode) return SY_EFORMAT;
        if (*opcode == '.') break;
        status = run(&m, *opcode);
    }
    if (!status && (p->n_stack != 1 || p->n_marks))
        status = malformed(&m, "it ends with other than one value");
    if (status) return status;
    p->root = p->stack[0];
    p->used = m.at;
    return SY_OK;
}

void syi_pickle_free(struct syi_pickle *p)
{
    syi_free(p->value);
    syi_free(p->cell);
    syi_free(p->stack);
    syi_free(p->mark);
    syi_free(p->memo);
    memset(p, 0, sizeof *p);
}
