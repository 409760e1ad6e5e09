/* SPDX-License-Identifier: Apache-2.0 */
/* A program: three plain arrays (tensors, ops, attribute bytes) and a pool of names. Indices, never pointers,
 * so a program can be copied, printed, hashed and compared. Recorded by core/model, extended by grad and
 * optim, rewritten by partition, fuse and lower, laid out by plan, executed by core/runtime. Every stage
 * leaves a program that syi_program_check accepts. */
#ifndef SYI_PROGRAM_H
#define SYI_PROGRAM_H

#include "base/index.h"
#include "program/roles.h"
#include "switchyard/ops.h"

/* Logical axes: X(NAME, name). Rules map them to mesh axes (core/parallel/mesh.h). Names are T5X's where it
 * has one. */
#define SYI_AXIS_MAP(X)                                                                                      \
    X(NONE, none)       /* not split, no meaning */                                                          \
    X(BATCH, batch)     /* rows of a batch */                                                                \
    X(GROUP, group)     /* routing groups: whole rows, split as batch is */                                  \
    X(LENGTH, length)   /* positions */                                                                      \
    X(EMBED, embed)     /* d_model */                                                                        \
    X(HEADS, joined_kv) /* heads x head_dim, or heads; split on head boundaries */                           \
    X(MLP, mlp)         /* d_ff of a dense block */                                                          \
    X(VOCAB, vocab)                                                                                          \
    X(EXPERT, expert)                                                                                        \
    X(EXPERT_MLP, expert_mlp)                                                                                \
    X(EXPERT_GROUP, expert_group) /* routing groups in an expert buffer */                                   \
    X(CAPACITY, capacity)         /* slots of an expert in a group */                                        \
    X(LAYERS, layers)             /* layers that are scanned over */                                         \
    X(BUCKETS, relpos_buckets)    /* relative position buckets */                                            \
    X(CHOICE, choice)             /* the k experts a token chooses */                                        \
    X(ROUTER, unmodeled)          /* experts as columns of the router: never split */

enum syi_axis {
#define SYI_AXIS_ENUM(NAME, name) SYI_AXIS_##NAME,
    SYI_AXIS_MAP(SYI_AXIS_ENUM)
#undef SYI_AXIS_ENUM
        SYI_AXIS_COUNT
};
const char *syi_axis_name(enum syi_axis axis);

/* What a tensor is for, which decides its segment. */
enum syi_kind {
    SYI_TEMP,   /* scratch: lives from its op to its last reader */
    SYI_PARAM,  /* persist: a weight, named as T5X names it */
    SYI_STATE,  /* persist: optimizer state */
    SYI_INPUT,  /* io: written by the host before a run */
    SYI_OUTPUT, /* io: read by the host after a run */
    SYI_CARRY   /* carry: lives between two programs of a phase */
};
enum syi_segment {
    SYI_PERSIST,
    SYI_IO,
    SYI_CARRY_SEGMENT,
    SYI_SCRATCH,
    SYI_SNAPSHOT, /* a copy of persist; no tensor of a program is in it */
    SYI_STAGING,  /* with device memory: what collectives send and receive, on the host; likewise */
    SYI_SEGMENT_COUNT
};

struct syi_tensor {
    uint32_t name; /* offset into names; 0: none. Persist, io and carry tensors are shared by name */
    uint8_t dtype; /* enum sy_dtype */
    uint8_t rank;
    uint8_t kind;    /* enum syi_kind */
    uint8_t partial; /* mesh axes whose ranks hold terms of a sum; 0 but between an op and its collective */
    uint8_t axis[SY_MAX_DIMS];  /* enum syi_axis */
    uint8_t split[SY_MAX_DIMS]; /* mesh axes that split the dim; 0 before partition */
    uint8_t role;               /* enum syi_role */
    uint32_t of;                /* which one of its role */
    float initial;              /* of a state: every element before the first step */
    int32_t cast;               /* 1 + the tensor that holds it in another dtype (syi_cast); 0: none */
    int64_t dim[SY_MAX_DIMS];   /* global extents; local ones after partition; 1 beyond the rank */
    uint64_t offset, bytes; /* in its segment; set by plan. bytes before: what lowering asks for at least */
};

struct syi_op {
    uint16_t op; /* enum sy_op */
    uint8_t n_in, n_out;
    uint8_t queue;             /* 0 compute, from 1 communication */
    uint16_t line;             /* where it was recorded */
    uint32_t file;             /* offset into names */
    uint32_t layer;            /* offset into names: module path, e.g. "encoder/layers_0/mlp" */
    uint32_t attr, attr_bytes; /* offset into attrs (8-byte aligned) */
    int32_t in[SY_MAX_IN];     /* tensor, -1: absent optional input */
    int32_t out[SY_MAX_OUT];
};

/* A name that occurs in a program. */
struct syi_name {
    uint32_t text;  /* offset into names */
    int32_t tensor; /* the first of this name, or -1 */
};

/* Limits of a program, global or local: with them no size of a tensor and no sum over tensors of a program
 * leaves 64 bits. 2^46 elements of float32 are 256 TiB. */
#define SYI_MAX_ELEMENTS         (UINT64_C(1) << 46) /* of a tensor */
#define SYI_MAX_PROGRAM_ELEMENTS (UINT64_C(1) << 58) /* of all tensors of a program */

struct syi_program {
    struct syi_tensor *tensor;
    struct syi_op *op;
    uint8_t *attrs;
    char *names;
    size_t n_tensors, n_ops, n_attrs, n_names;
    size_t cap_tensors, cap_ops, cap_attrs, cap_names;
    struct syi_index name_index; /* of names, by their place in name_entry */
    struct syi_name *name_entry; /* [name_index.n] in the order in which they came */
    size_t cap_entries;
    uint64_t elements;                   /* of all tensors together */
    char title[48];                      /* "grad_first", "eval", ... */
    uint32_t leaf_count[SYI_AXIS_COUNT]; /* B of each axis, at least 1 (doc/numerics.md) */
    uint32_t layer;                      /* scope of ops recorded now */
    uint32_t file, line;                 /* place of ops recorded now */
    int status;                          /* sticky: the first failure of recording */
    struct sy_error error;
};

/* ---- program.c: the arrays ---- */

int syi_program_new(const char *title, struct syi_program **program, struct sy_error *err) SYI_MUST_CHECK;
void syi_program_free(struct syi_program *program);
int syi_program_copy(const struct syi_program *from, struct syi_program **to,
                     struct sy_error *err) SYI_MUST_CHECK;
/* The recording's first error, if any; ends every recording. */
int syi_program_status(const struct syi_program *program, struct sy_error *err) SYI_MUST_CHECK;
/* Fails the recording (sticky) and returns -1, so that a record function can return it as its tensor. */
int syi_program_fail(struct syi_program *program, int status, const char *format, ...) SYI_PRINTF(3, 4);
const void *syi_program_attr(const struct syi_program *program, const struct syi_op *op);
/* New attributes for an op, `bytes` of zeros at *attr, to be written before any op gets others; what it had is left
 * behind. */
int syi_attr_new(struct syi_program *program, struct syi_op *op, size_t bytes, void **attr,
                 struct sy_error *err) SYI_MUST_CHECK;
/* Gives a product of weights in panels this activation, and its attributes to an op that was a product without them (its leaf
 * stays). */
int syi_panels_attr(struct syi_program *program, struct syi_op *op, enum sy_activation activation,
                    struct sy_error *err) SYI_MUST_CHECK;
int64_t syi_tensor_count(const struct syi_tensor *tensor);
size_t syi_dtype_bytes(enum sy_dtype dtype);
/* What starts in memory starts at a whole cache line, and pieces that travel are whole lines. */
enum { SYI_LINE_BYTES = 64, SYI_LINE_FLOATS = SYI_LINE_BYTES / 4 };
static inline uint64_t syi_whole_lines(uint64_t bytes)
{
    return syi_add_u64(bytes, SYI_LINE_BYTES - 1) / SYI_LINE_BYTES * SYI_LINE_BYTES;
}
const char *syi_dtype_name(enum sy_dtype dtype);
int syi_is_float(enum sy_dtype dtype);
/* Elements of a tensor that is bound, and one of them by its row-major number. */
int64_t syi_bound_count(const struct sy_tensor *tensor);
double syi_bound_value(const struct sy_tensor *tensor, int64_t i);
enum syi_segment syi_kind_segment(enum syi_kind kind);
/* Adds a tensor, an op; -1 / status on failure (sticky). name may be NULL. Extents below 1 and tensors beyond
 * the limits above are refused by name. */
int syi_tensor_add(struct syi_program *program, const char *name, enum syi_kind kind, enum sy_dtype dtype,
                   int rank, const int64_t *dim, const uint8_t *axis);
int syi_op_add(struct syi_program *program, int op, int n_in, const int *in, int n_out, const int *out,
               const void *attr, size_t attr_bytes);
/* Takes out the ops marked in gone[n_ops]. */
void syi_program_remove(struct syi_program *program, const uint8_t *gone);
/* Module path of what is recorded next: push appends "/name", pop takes the last part off. */
void syi_scope_push(struct syi_program *program, const char *format, ...) SYI_PRINTF(2, 3);
void syi_scope_pop(struct syi_program *program);
#define SYI_AT(program)                                                                                      \
    ((program)->file = syi_program_intern((program), __FILE__), (program)->line = __LINE__)

/* ---- program.c: names, found without walking through them ---- */

const char *syi_program_name(const struct syi_program *program, uint32_t name);
uint32_t syi_program_intern(struct syi_program *program, const char *text); /* 0 for "" and on failure */
int syi_program_find(const struct syi_program *program, const char *name);  /* the first tensor, or -1 */
/* Gives a tensor that has no name one; a failure is sticky. */
void syi_tensor_rename(struct syi_program *program, int tensor, const char *name);

/* ---- op_table.c: what ops.def says ---- */

struct syi_op_info {
    const char *name, *labels, *split, *types, *flags, *help;
    double tolerance;
    const char *attributes; /* fields of the attribute structure, separated by ", "; "": none */
    size_t attr_bytes;      /* of the attribute structure; of a map without its instructions */
};
const struct syi_op_info *syi_op_info(enum sy_op op);
int syi_op_has_flag(enum sy_op op, char flag);
/* Whether an op moves data between ranks: all of a group run it together, in one order. */
int syi_op_is_collective(enum sy_op op);
/* Whether an op is a product of weights in panels: of type p in second place. */
int syi_op_multiplies_panels(enum sy_op op);
/* The integer attribute that ops.def names so; `otherwise` where the op has none of that name. */
int64_t syi_op_field(const struct syi_program *program, const struct syi_op *op, const char *name,
                     int64_t otherwise);
int syi_op_has_field(enum sy_op op, const char *name); /* whether ops.def names an attribute so */
/* Registers that an instruction of maps.def reads; -1: there is no such instruction. ops/map.c */
int syi_map_arguments(enum sy_map_op op);
int syi_op_reads(const struct syi_op *op, int tensor); /* whether the tensor is among its inputs */
int syi_op_writes(const struct syi_op *op, int tensor);
/* Letters of operand `index` (inputs first, then outputs) as a string of rank letters in `letters`; "..."
 * stands for "bt" or "ebc" by rank. Returns 0 when the row has no such operand. */
int syi_op_letters(enum sy_op op, int output, int index, int rank, char letters[SY_MAX_DIMS + 1]);
/* Number of inputs or outputs of an op whose row has letters, and a bit for each that may be absent. */
int syi_op_operands(enum sy_op op, int output, unsigned *optional);

/* ---- check.c ---- */

/* Every operand exists, is written before it is read, and fits the row of ops.def (types, extents tied by
 * letters, leaves divide) and the rules of its family. stage names the pass in the message. */
int syi_program_check(const struct syi_program *program, const char *stage,
                      struct sy_error *err) SYI_MUST_CHECK;

/* ---- explain.c ---- */

typedef void (*syi_line_fn)(void *arg, const char *line);
/* One op a line: number, queue, layer, op, outputs with dtype and shape, inputs, attributes, place, source
 * line. */
int syi_program_explain(const struct syi_program *program, syi_line_fn line, void *arg,
                        struct sy_error *err) SYI_MUST_CHECK;
/* The line of one op, without leading spaces. */
void syi_op_text(const struct syi_program *program, size_t op, char *text, size_t bytes);
/* "t12 f32[64b,24,128]" with letters of mesh axes after split dims. */
void syi_tensor_text(const struct syi_program *program, int tensor, char *text, size_t bytes);
/* "de" for a set of mesh axes: bit 1 data, 2 expert, 4 model. */
const char *syi_split_letters(int axes);

#endif
