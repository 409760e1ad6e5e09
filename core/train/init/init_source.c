/* SPDX-License-Identifier: Apache-2.0 */
/* The run that weights are taken from: where it is, and how it differs from this one. */
#include "config.h"

#include <string.h>

#include "train/checkpoint/checkpoint.h"
#include "train/init/init_source.h"
#include "train/launch/run_dir.h"

/* Whether path is a folder of one checkpoint; what source then is. */
static int split(const char *path, struct syi_init_source *source)
{
    size_t length = strlen(path);
    while (length && path[length - 1] == '/') length--;
    snprintf(source->run_dir, sizeof source->run_dir, "%.*s", (int)length, path);
    return syi_checkpoint_split(source->run_dir, &source->step);
}

int syi_init_locate(const struct syi_train_part *train, struct syi_init_source *source, struct sy_error *err)
{
    int folder = !syi_run_dir_exists(train->init_from) && split(train->init_from, source);
    if (!folder) {
        snprintf(source->run_dir, sizeof source->run_dir, "%s", train->init_from);
        source->step = SYI_CHECKPOINT_LATEST;
        if (!strcmp(train->init_step, "best")) source->step = SYI_CHECKPOINT_BEST;
        syi_config_number(train->init_step, &source->step);
    } else if (strcmp(train->init_step, "latest")) {
        return syi_error(
            err, SY_EINVAL,
            "train.init_from = \"%s\" names a checkpoint, and train.init_step = \"%s\" another: leave one "
            "of the two out",
            train->init_from, train->init_step);
    }
    if (syi_run_dir_exists(source->run_dir)) return SY_OK;
    char before[sizeof train->init_from + 32];
    snprintf(before, sizeof before, "train.init_from = \"%s\": ", train->init_from);
    return syi_run_dir_refuse(source->run_dir, before, "a folder checkpoints/STEP in one", err);
}

/* ---- differences ---- */

static int is_of_model(const char *key, enum syi_option_flags flags)
{
    return flags == SYI_OPTION_MODEL && (!strncmp(key, "model.", 6) || !strncmp(key, "moe.", 4));
}

static int note_difference(void *arg, const char *key, enum syi_option_flags flags, const char *theirs,
                           const char *mine)
{
    if (is_of_model(key, flags))
        syi_text_printf(arg, "init: %s is %s in the run that weights are taken from, and %s in this one\n",
                        key, theirs, mine);
    return SY_OK;
}

/* *same: whether both files hold the same. */
static int same_file(const char *a, const char *b, int *same, struct sy_error *err)
{
    char *text_a = NULL, *text_b = NULL;
    size_t bytes_a = 0, bytes_b = 0;
    int status = syi_file_read(a, &text_a, &bytes_a, err);
    if (!status) status = syi_file_read(b, &text_b, &bytes_b, err);
    *same = !status && bytes_a == bytes_b && !memcmp(text_a, text_b, bytes_a);
    syi_free(text_a);
    syi_free(text_b);
    return status;
}

static int compare_vocabulary(const struct syi_config *theirs, const struct syi_config *mine, int target,
                              struct sy_error *err)
{
    const struct syi_vocabulary_part *a = syi_config_vocabulary(theirs, target),
                                     *b = syi_config_vocabulary(mine, target);
    int same = a->kind == b->kind && a->extra_ids == b->extra_ids && a->special_tokens == b->special_tokens,
        status = SY_OK;
    if (same && *a->file) status = same_file(a->file, b->file, &same, err);
    if (status || same) return status;
    return syi_error(
        err, SY_EMISMATCH,
        "the vocabulary of %s is another one in %s, so weights of tokens would go to other tokens: keep its "
        "vocabulary (kind, file, extra_ids, special_tokens), leave these weights out by train.init_match, or set "
        "train.init_vocabulary = \"any\"",
        target ? "targets" : "inputs", mine->train.init_from);
}

int syi_init_compare(const struct syi_init_source *source, const struct syi_config *config, int tokens,
                     struct syi_text *notes, struct sy_error *err)
{
    struct syi_config *theirs = syi_alloc(sizeof *theirs, err);
    if (!theirs) return SY_ENOMEM;
    int status = syi_run_dir_read_config(source->run_dir, theirs, err);
    if (!status) status = syi_run_dir_use_vocabularies(source->run_dir, theirs, err);
    if (!status) status = syi_config_compare(theirs, config, note_difference, notes, err);
    if (config->train.init_vocabulary == SYI_INIT_VOCABULARY_ANY) tokens = 0;
    for (int target = 0; target < 2 && tokens && !status; target++)
        status = compare_vocabulary(theirs, config, target, err);
    syi_free(theirs);
    return status;
}

struct naming {
    const char *run_dir;
    int n;
    struct syi_text text;
};

static int name_difference(void *arg, const char *key, enum syi_option_flags flags, const char *theirs,
                           const char *mine)
{
    enum { NAMED = 4 };
    struct naming *naming = arg;
    if (!is_of_model(key, flags)) return SY_OK;
    if (naming->n++ < NAMED)
        syi_text_printf(&naming->text, "; %s is %s in %s and %s here", key, theirs, naming->run_dir, mine);
    else if (naming->n == NAMED + 1)
        syi_text_puts(&naming->text, "; and others");
    return SY_OK;
}

void syi_init_name_differences(const struct syi_init_source *source, const struct syi_config *config,
                               struct sy_error *err)
{
    struct syi_config *theirs = err ? syi_alloc(sizeof *theirs, NULL) : NULL;
    struct naming naming = {.run_dir = source->run_dir};
    int status = theirs ? syi_run_dir_read_config(source->run_dir, theirs, NULL) : SY_ENOMEM;
    if (!status) status = syi_config_compare(theirs, config, name_difference, &naming, NULL);
    if (!status && !syi_text_status(&naming.text, NULL) && naming.n) {
        size_t used = strlen(err->text);
        snprintf(err->text + used, sizeof err->text - used, "%s", naming.text.data);
        syi_keep_one_line(err->text);
    }
    syi_text_free(&naming.text);
    syi_free(theirs);
}
