/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of other programs. A format opens a folder and says which model is in it (the keys of a run file that the
 * folder determines) and which tensors, under switchyard's names: those of T5X without scanned layers, "target/..." for
 * parameters and "state/..." for optimizer state. What is common to all formats, that each parameter of the model is
 * there with its shape, what is left over, and writing the run directory, is import.c's. */
#ifndef SYI_IMPORT_H
#define SYI_IMPORT_H

#include "base/run_config.h"
#include "base/safetensors.h"
#include "model/model.h"

struct syi_import_tensor {
    char *name;                       /* switchyard's, owned */
    char *origin;                     /* as the folder names it, for messages, owned */
    enum syi_safetensors_dtype dtype; /* as stored */
    int rank;
    int64_t
        dims[SYI_SAFETENSORS_RANK]; /* [rank] as the model has them: transposed, stacked and cut already */
    int64_t place[4];               /* of the format: where it is and what is done to it */
};

struct syi_import {
    const struct syi_import_format *format;
    char *folder; /* for messages, owned */
    struct syi_config
        config;   /* on opening what --set and the run file of the command give; open sets on it the keys
                                 that the folder determines */
    int64_t step; /* of the checkpoint; 0 where the format has none */
    struct syi_import_tensor *tensors; /* [n] owned */
    size_t n, capacity;
    struct syi_text unused; /* a line for all in the folder that has no place here, and why */
    void *state;            /* of the format */
};

/* A row of the table in formats.c. */
struct syi_import_format {
    const char *name; /* hf, t5x: --format */
    const char *help;
    int (*recognise)(const char *folder); /* 1: it looks like this format, by its files' names alone */
    /* Fills config, tensors, unused and state. Unknown architectures are SY_EUNSUPPORTED and name the nearest known. */
    int (*open)(struct syi_import *import, struct sy_error *err);
    /* Elements of a tensor, dense, in C order of its dims, in its stored dtype (little endian). */
    int (*read)(struct syi_import *import, const struct syi_import_tensor *tensor, void *to,
                struct sy_error *err);
    void (*close)(struct syi_import *import); /* frees state; also after a failed open */
};

extern const struct syi_import_format syi_import_hf, syi_import_t5x;

/* NULL-terminated. */
extern const struct syi_import_format *const syi_import_formats[];

/* Opens `folder` in the format of that name, or NULL: the one that recognises it. import->config is set before, all else
 * is zero. Closed by the caller also after failure. */
int syi_import_open(struct syi_import *import, const char *folder, const char *format,
                    struct sy_error *err) SYI_MUST_CHECK;
void syi_import_close(struct syi_import *import);
/* For formats: adds a tensor; names are copied. */
int syi_import_add(struct syi_import *import, const struct syi_import_tensor *tensor,
                   struct sy_error *err) SYI_MUST_CHECK;
/* By name, once all are there; SY_EFORMAT where two have one name. syi_import_open does so. */
int syi_import_sort(struct syi_import *import, struct sy_error *err) SYI_MUST_CHECK;
/* Once it is open; NULL: there is none of this name. */
const struct syi_import_tensor *syi_import_find(const struct syi_import *import, const char *name);
/* The parameters of a configuration's model, which is checked first. Freed by the caller. */
int syi_import_model(const struct syi_config *config, struct syi_model *model,
                     struct sy_error *err) SYI_MUST_CHECK;
/* That config is a valid one, and that its model has exactly the parameters "target/..." that are there, of their shapes:
 * SY_EMISMATCH names the first that differs. */
int syi_import_check(const struct syi_import *import, struct sy_error *err) SYI_MUST_CHECK;
/* The elements of a tensor widened to float32, dense in C order of its dims. Integers are refused. */
int syi_import_read(struct syi_import *import, const struct syi_import_tensor *tensor, float *to,
                    struct sy_error *err) SYI_MUST_CHECK;
/* Checks, then makes the run directory `to`, which must not exist or be empty: run.conf, vocabulary where there is one, and
 * the checkpoint of import->step, with parameters as float32 and state as it is stored. It is made as `to`.tmp and gets
 * its name when it is whole; nothing is left where that fails. */
int syi_import_write(struct syi_import *import, const char *to, struct sy_error *err) SYI_MUST_CHECK;

#endif
