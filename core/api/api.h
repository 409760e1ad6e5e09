/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the public library share: structures that programs of other versions fill, where a model is, and the
 * floating-point mode of the caller's thread. */
#ifndef SYI_API_H
#define SYI_API_H

#include <fenv.h>

#include "base/run_config.h"
#include "data/vocabulary.h"
#include "train/launch/launch.h"

/* Copies a structure that begins with its own bytes, as the program knows it; what it does not know becomes 0. from NULL: all
 * zeros. SY_EINVAL: bytes is not set; SY_EUNSUPPORTED: it asks for what only a later version has. */
int syi_api_take(void *to, size_t size, const void *from, const char *name,
                 struct sy_error *err) SYI_MUST_CHECK;
/* The other way: as much of `from` as the program knows; its bytes stay. */
int syi_api_give(void *to, const void *from, size_t size, const char *name,
                 struct sy_error *err) SYI_MUST_CHECK;

/* A run directory and a checkpoint in it. */
struct syi_api_place {
    char run_dir[SYI_CONFIG_STRING];
    int64_t checkpoint; /* a step or SYI_CHECKPOINT_LATEST, SYI_CHECKPOINT_BEST */
};
/* From a path that names a run directory or the folder of a checkpoint. */
int syi_api_find(const char *path, const char *checkpoint, struct syi_api_place *place,
                 struct sy_error *err) SYI_MUST_CHECK;
/* The run's configuration, for one rank. *mesh: what it says of its ranks; or NULL. */
int syi_api_read_run(const struct syi_api_place *place, struct syi_config *config, struct syi_mesh_part *mesh,
                     struct sy_error *err) SYI_MUST_CHECK;
/* options->set and what else of the options has a key, then all rules. */
int syi_api_apply(const struct sy_open_options *options, struct syi_config *config,
                  struct sy_error *err) SYI_MUST_CHECK;
/* Threads and backend. */
int syi_api_launch(const struct sy_open_options *options, const struct syi_config *config, int exact,
                   struct syi_alone *alone, struct sy_error *err) SYI_MUST_CHECK;

/* A text of the program's as one of ours. */
static inline struct syi_span syi_api_span(const struct sy_text *text)
{
    return (struct syi_span){text->bytes ? text->text : "", text->bytes};
}

/* Around every call that computes: the mode of this thread may be another one than results are defined for. */
static inline void syi_api_enter(fenv_t *before)
{
    fegetenv(before);
    syi_fp_reset();
}
static inline void syi_api_leave(const fenv_t *before)
{
    fesetenv(before);
}

#endif
