/* SPDX-License-Identifier: Apache-2.0 */
/* Gin files, the configurations of T5X: read into bindings, nothing is looked up or called. Values are literals of Python, macros
 * (%NAME) and references (@function). gin_conversion.h says how they become a run file, gin_keys.def which keys. */
#ifndef SYI_GIN_H
#define SYI_GIN_H

#include "base/base.h"
#include "base/text.h"

enum syi_gin_kind {
    SYI_GIN_NUMBER,   /* text: as written, without underscores; whole numbers in decimal */
    SYI_GIN_STRING,   /* text: its bytes up to a NUL */
    SYI_GIN_WORD,     /* True, False, None */
    SYI_GIN_LIST,     /* a list or a tuple */
    SYI_GIN_DICT,     /* children: key, value, key, value, ... */
    SYI_GIN_MACRO,    /* %NAME; text: the name */
    SYI_GIN_REFERENCE /* @scope/function or with (); text: the name with its scope */
};

enum { SYI_GIN_NONE = UINT32_MAX, SYI_GIN_DEPTH = 32, SYI_GIN_FILES = 256, SYI_GIN_NODES = 16384 };

struct syi_gin_node {
    enum syi_gin_kind kind;
    uint32_t text;        /* offset in strings, see SYI_GIN_* */
    uint32_t first, next; /* child and sibling, SYI_GIN_NONE: there is none */
    uint32_t children;
};

/* One "scope/module.function.parameter = value", or a macro, whose name has no dot. */
struct syi_gin_binding {
    uint32_t name, file; /* offsets in strings */
    int line;            /* of the name, from 1 */
    uint32_t value;      /* a node */
};

/* A statement that gives no binding: an include whose file is not there, or a statement that is read and left out. */
struct syi_gin_note {
    uint32_t file, text; /* offsets in strings */
    int line;
};

/* Start from {0}; syi_gin_free empties it. Everything is owned by it. */
struct syi_gin {
    struct syi_gin_node *nodes;
    struct syi_gin_binding *bindings; /* in the order of the files: a later one of the same name holds */
    struct syi_gin_note *missing;     /* includes */
    char *strings;                    /* each with its NUL */
    size_t n_nodes, n_bindings, n_missing, string_bytes;
    size_t node_capacity, binding_capacity, missing_capacity, string_capacity;
    int files; /* read so far */
};

/* Adds the bindings of a text; `path` opens messages. Included files are read where they are found: as named, or below the folder
 * of `path` or one of the folders above it; includes = 0: none is read, all are `missing`. A syntax error is SY_EFORMAT with
 * file and line; what was read before it stays in gin. */
int syi_gin_parse(struct syi_gin *gin, const char *path, const char *text, size_t bytes, int includes,
                  struct sy_error *err) SYI_MUST_CHECK;
/* The same of a file. */
int syi_gin_load(struct syi_gin *gin, const char *path, struct sy_error *err) SYI_MUST_CHECK;
void syi_gin_free(struct syi_gin *gin);

static inline const char *syi_gin_string(const struct syi_gin *gin, uint32_t at)
{
    return gin->strings + at;
}
/* The value of a macro, through macros, or the last of them where that is not bound; SYI_GIN_NONE where one names itself. A
 * value that is no macro is its own. */
uint32_t syi_gin_follow(const struct syi_gin *gin, uint32_t value);
/* The same, but SYI_GIN_NONE where a macro is not bound. */
uint32_t syi_gin_resolve(const struct syi_gin *gin, uint32_t value);
/* The value as gin would write it, on one line. */
void syi_gin_print(const struct syi_gin *gin, uint32_t value, struct syi_text *out);

/* Makes a run file of the bindings and appends it to run_file: a header, the keys that have a value, and as comments what was not
 * converted, with the reason. The same lines without "# " are appended to warnings. Fails when memory is short alone. */
int syi_gin_convert(const struct syi_gin *gin, const char *path, struct syi_text *run_file,
                    struct syi_text *warnings, struct sy_error *err) SYI_MUST_CHECK;

#endif
