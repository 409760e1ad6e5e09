/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the format t5x: checkpoints of T5X's Checkpointer (version 3 and before) and those that its trainer wrote
 * through Orbax as zarr arrays.
 *
 *   t5x_checkpoint.c   the folder: its index and its arrays, under T5X's names
 *   t5x_names.c        which tensors of ours an array is: scanned stacks are cut into layers
 *   t5x_config.c       which model it is, by names and shapes
 *   t5x_state.c        Adafactor's state, and the keys of the optimizer that has it
 *   t5x.c              the row of the table of formats */
#ifndef SYI_T5X_H
#define SYI_T5X_H

#include "import/import.h"
#include "import/msgpack.h"
#include "import/zarr.h"

/* ---- t5x_checkpoint.c ---- */

struct syi_t5x_array {
    char *name;                       /* "target/encoder/encoder_norm/scale", owned */
    enum syi_safetensors_dtype dtype; /* as stored */
    int rank;
    int64_t dims[SYI_SAFETENSORS_RANK]; /* [rank] */
    const void *in_place;               /* its elements in the index, borrowed; NULL: */
    struct syi_zarr zarr;               /* a folder; if that is NULL too: */
    void *joined;                       /* of a chunked one in place, owned */
};

struct syi_t5x_checkpoint {
    char *folder;                /* that has the arrays, owned */
    char *index;                 /* contents of its file `checkpoint`, owned */
    struct syi_t5x_array *array; /* [n] by name */
    size_t n, capacity;
    int64_t step; /* of state/step, 0 without */
};

/* By the names of its files alone. */
int syi_t5x_is_checkpoint(const char *folder);
/* Reads the index and opens all arrays. The caller closes it, after a failure too. */
int syi_t5x_checkpoint_open(struct syi_t5x_checkpoint *checkpoint, const char *folder,
                            struct sy_error *err) SYI_MUST_CHECK;
void syi_t5x_checkpoint_close(struct syi_t5x_checkpoint *checkpoint); /* safe when zeroed */
/* NULL: there is none of this name. */
const struct syi_t5x_array *syi_t5x_find(const struct syi_t5x_checkpoint *checkpoint, const char *name);
/* Bytes of all elements of the array, which are in memory or on disk. */
size_t syi_t5x_array_bytes(const struct syi_t5x_array *array);
int syi_t5x_array_read(const struct syi_t5x_array *array, void *to, struct sy_error *err) SYI_MUST_CHECK;

/* ---- t5x_names.c ---- */

enum { SYI_T5X_LAYERS = 4096 }; /* most layers of a stack, as in the run file */

/* A parameter's name taken apart. */
struct syi_t5x_name {
    char stack[8];    /* "encoder", "decoder"; "": it is of no layer */
    int scanned;      /* 1: the layers are axis 1 of the array */
    int64_t layer;    /* where not scanned */
    int64_t subblock; /* scanned: which of those that repeat, each of one layer; -1: there are none */
    const char
        *rest; /* below the layer: "attention/query/kernel", borrowed; the whole name where stack is "" */
};
struct syi_t5x_name syi_t5x_name_parse(const char *name); /* name: without "target/" */
/* Sub-blocks of the scanned encoder and decoder; 1 without. */
struct syi_t5x_blocks {
    int64_t n[2];
};
struct syi_t5x_blocks syi_t5x_count_blocks(const struct syi_t5x_checkpoint *checkpoint);
/* Name without "target/" of the layer's parameter that cut i of a scanned array is, or i = 0 of another; owned by the
 * caller. */
char *syi_t5x_cut_name(const struct syi_t5x_name *name, const struct syi_t5x_blocks *blocks, int64_t i,
                       struct sy_error *err) SYI_MUST_CHECK;
int syi_t5x_has_experts(const struct syi_t5x_name *name); /* the array has them as axis 0 */
int syi_t5x_is_output(const struct syi_t5x_name *name);   /* a kernel whose last axis is that of d_model */

/* How a tensor of an import is cut from an array, in its place[]. */
enum syi_t5x_place {
    SYI_T5X_ARRAY, /* which array */
    SYI_T5X_CUT,   /* which cut */
    SYI_T5X_CUTS,  /* along an axis that is so long; 0: the whole array */
    SYI_T5X_INNER  /* elements after that axis */
};
struct syi_t5x_shape {
    int rank;
    int64_t dims[SYI_SAFETENSORS_RANK]; /* [rank], then 0 */
};
/* The array's axes that are left without `axis` (-1: all). */
struct syi_t5x_shape syi_t5x_without(const struct syi_t5x_array *array, int axis);
/* That of a layer's parameter: without layers, heads and their width as one axis. */
struct syi_t5x_shape syi_t5x_parameter_shape(const struct syi_t5x_array *array,
                                             const struct syi_t5x_name *name);
/* Adds a tensor under a name in full: cut i along `axis` (-1: the whole) of array `at`, of that shape. */
int syi_t5x_add(struct syi_import *import, const struct syi_t5x_checkpoint *checkpoint, size_t at, int axis,
                int64_t i, const struct syi_t5x_shape *shape, const char *name,
                struct sy_error *err) SYI_MUST_CHECK;
/* Adds the parameters that array `at`, "target/...", holds. */
int syi_t5x_add_parameter(struct syi_import *import, const struct syi_t5x_checkpoint *checkpoint,
                          const struct syi_t5x_blocks *blocks, size_t at,
                          struct sy_error *err) SYI_MUST_CHECK;

/* ---- t5x_state.c ---- */

/* Adds state/step and Adafactor's state, and sets the keys of [optimizer] that it needs. State that a run cannot hold is
 * left out, with a line in import->unused. Called after all parameters are added. */
int syi_t5x_add_state(struct syi_import *import, const struct syi_t5x_checkpoint *checkpoint,
                      const struct syi_t5x_blocks *blocks, struct sy_error *err) SYI_MUST_CHECK;

/* ---- t5x_config.c ---- */

/* Sets a key of import->config; a value that is out of range is SY_EUNSUPPORTED and the message names the folder. */
int syi_t5x_set(struct syi_import *import, const char *key, const char *value,
                struct sy_error *err) SYI_MUST_CHECK;
/* Appends "key = value, ..." of what belongs to a model and stands in T5X's gin files alone; gin: values as these have them. */
int syi_t5x_unsaid(const struct syi_config *config, int gin, struct syi_text *text,
                   struct sy_error *err) SYI_MUST_CHECK;
/* The keys of the model that the parameters' names and shapes determine; logs the values of those that they do not. */
int syi_t5x_set_model(struct syi_import *import, struct sy_error *err) SYI_MUST_CHECK;

#endif
