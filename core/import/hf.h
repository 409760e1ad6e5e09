/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of Hugging Face transformers, between the files hf*.c: config.json and what follows from it, names of tensors
 * both ways, the vocabulary. */
#ifndef SYI_HF_H
#define SYI_HF_H

#include "import/import.h"
#include "import/stored.h"

enum syi_hf_family { SYI_HF_T5, SYI_HF_MT5, SYI_HF_UMT5, SYI_HF_SWITCH };

struct syi_hf {
    enum syi_hf_family family;
    int tied; /* the head is the embedding, as the tensors have it */
    struct syi_stored stored;
    size_t *part; /* [n_parts] stored tensors of each import tensor: one, or one an expert */
    size_t n_parts, part_capacity;
};

/* ---- hf_json.c ---- */

/* NULL: absent or null. */
const struct syi_json_node *syi_hf_member(const struct syi_json *json, uint32_t object, const char *key);
/* A member of an object. What is absent or null leaves *value as it is; another type is an error. `what`: the file. */
int syi_hf_integer(const struct syi_json *json, uint32_t object, const char *what, const char *key,
                   int64_t *value, struct sy_error *err) SYI_MUST_CHECK;
int syi_hf_real(const struct syi_json *json, uint32_t object, const char *what, const char *key,
                double *value, struct sy_error *err) SYI_MUST_CHECK;
int syi_hf_flag(const struct syi_json *json, uint32_t object, const char *what, const char *key, int *value,
                struct sy_error *err) SYI_MUST_CHECK;
/* Borrowed from json. */
int syi_hf_text(const struct syi_json *json, uint32_t object, const char *what, const char *key,
                const char **value, struct sy_error *err) SYI_MUST_CHECK;
/* Reads FOLDER/NAME, an object. *there 0: there is no such file. Freed by the caller. */
int syi_hf_json(const char *folder, const char *name, struct syi_json *json, int *there,
                struct sy_error *err) SYI_MUST_CHECK;
/* Sets a key of the run file; what is wrong with the value is said of `what`. */
int syi_hf_set(struct syi_config *config, const char *what, struct sy_error *err, const char *format, ...)
    SYI_PRINTF(4, 5) SYI_MUST_CHECK;

/* ---- hf_config.c ---- */

/* config.json, generation_config.json and the names of tensors to keys of the run file. */
int syi_hf_config(struct syi_import *import, struct sy_error *err) SYI_MUST_CHECK;

/* ---- hf_generation.c ---- */

/* That padding and the end are the ids they are here, and the decoder's first id, which is that of padding where the file has none. */
int syi_hf_ends(const struct syi_json *json, const char *what, int64_t *start,
                struct sy_error *err) SYI_MUST_CHECK;
/* What generate() does by default to [decode], from generation_config.json or, in folders older than that file, from config.json,
 * which is given. */
int syi_hf_generation(struct syi_import *import, const struct syi_json *config, const char *what,
                      struct sy_error *err) SYI_MUST_CHECK;

/* ---- hf_names.c ---- */

enum { SYI_HF_NAME = 200 };
struct syi_hf_name {
    char text[SYI_HF_NAME]; /* of experts with %d for the number */
    int transposed;         /* our matrix is theirs transposed */
    int experts;            /* one tensor an expert, stacked on the first axis here */
};
/* Theirs of a parameter of ours; 0: their models have no such parameter. */
int syi_hf_name(const char *param, enum syi_hf_family family, struct syi_hf_name *name);
/* The tensor of one expert. */
void syi_hf_expert_name(const struct syi_hf_name *name, int64_t expert, char text[SYI_HF_NAME]);

/* ---- hf_vocabulary.c ---- */

/* Sets [vocabulary] by the tokenizer's files. */
int syi_hf_vocabulary(struct syi_import *import, struct sy_error *err) SYI_MUST_CHECK;
/* Whether a piece is <extra_id_N>. */
int syi_hf_is_extra_id(const char *piece);

/* ---- hf_added_tokens.c ---- */

/* A line in import->unused about the tokens that the pieces do not have. */
int syi_hf_added_tokens(struct syi_import *import, struct sy_error *err) SYI_MUST_CHECK;

#endif
