/* SPDX-License-Identifier: Apache-2.0 */
/* The part of Python's pickle format (protocol 2) in which torch.save writes a dictionary of tensors. A stack machine that
 * makes values in one array and calls nothing: globals are names of a short list, and any other name or opcode is
 * refused. No recursion; the numbers of values, of cells and of stack entries are bounded by the bytes read. */
#ifndef SYI_PICKLE_H
#define SYI_PICKLE_H

#include "base/safetensors.h"

enum syi_pickle_kind {
    SYI_PICKLE_NONE,
    SYI_PICKLE_BOOL,
    SYI_PICKLE_INTEGER,
    SYI_PICKLE_TEXT,
    SYI_PICKLE_GLOBAL,
    SYI_PICKLE_TUPLE,
    SYI_PICKLE_LIST,
    SYI_PICKLE_DICT, /* cells alternate between key and value */
    SYI_PICKLE_STORAGE,
    SYI_PICKLE_TENSOR
};

struct syi_pickle_value {
    uint8_t kind;
    uint8_t global; /* which one of the list; of a storage: its dtype (enum syi_safetensors_dtype) */
    uint32_t first,
        last;        /* cells of a container, 0: none; of a tensor or storage: of what it was made from */
    uint32_t n;      /* cells of a container; bytes of a text */
    int64_t integer; /* of an integer or bool; of a text: where it begins in the bytes read */
};

struct syi_pickle_cell {
    uint32_t value, next; /* next 0: the last one */
};

struct syi_pickle {
    const uint8_t *bytes; /* [n_bytes] borrowed, as long as the struct is used */
    size_t n_bytes, used; /* used: up to and with the STOP */
    const char *what;     /* of messages */
    struct syi_pickle_value *value;
    struct syi_pickle_cell *cell; /* number 0 is no cell */
    uint32_t *stack, *mark;       /* value on it; stack height at each mark */
    uint32_t *memo;               /* value + 1 of each number, 0: none */
    size_t n_values, n_cells, n_stack, n_marks, n_memo;
    size_t value_capacity, cell_capacity, stack_capacity, mark_capacity, memo_capacity;
    uint32_t root; /* what was on the stack at the end */
};

enum { SYI_PICKLE_RANK = SYI_SAFETENSORS_RANK };
/* A tensor as torch rebuilds it: elements of a storage, by strides. */
struct syi_pickle_tensor {
    const char *key; /* of the storage, borrowed from the bytes read, n_key bytes */
    size_t n_key;
    enum syi_safetensors_dtype dtype;
    int64_t count;  /* elements of the storage */
    int64_t offset; /* of the first element */
    int rank;
    int64_t dims[SYI_PICKLE_RANK], stride[SYI_PICKLE_RANK]; /* [rank] in elements */
};

/* Runs one pickle at the start of `bytes`, up to its STOP. `what` opens messages. Freed by the caller, also after a
 * failure. */
int syi_pickle_read(struct syi_pickle *pickle, const char *what, const void *bytes, size_t n_bytes,
                    struct sy_error *err) SYI_MUST_CHECK;
void syi_pickle_free(struct syi_pickle *pickle);
/* Text of a value; NULL where it is none. Borrowed, *n bytes without a NUL. */
const char *syi_pickle_text(const struct syi_pickle *pickle, uint32_t value, size_t *n);
/* Of a dictionary, the value of that key; -1: none. */
int64_t syi_pickle_member(const struct syi_pickle *pickle, uint32_t dict, const char *key);
/* Takes a tensor apart; SY_EFORMAT where its parts are not what they should be, or do not lie in the storage. */
int syi_pickle_tensor(const struct syi_pickle *pickle, uint32_t value, struct syi_pickle_tensor *tensor,
                      struct sy_error *err) SYI_MUST_CHECK;
/* The same of a storage: key, dtype and count. */
int syi_pickle_storage(const struct syi_pickle *pickle, uint32_t value, struct syi_pickle_tensor *tensor,
                       struct sy_error *err) SYI_MUST_CHECK;

#endif
