/* SPDX-License-Identifier: Apache-2.0 */
/* sy_trainer of a library that was built without training (--disable-training): every call says so. */
#include "config.h"

#include "base/base.h"

static int refuse(struct sy_error *err)
{
    return syi_error(err, SY_EUNSUPPORTED,
                     "this switchyard was built without training: build it without --disable-training");
}

int sy_trainer_open(const char *path, const struct sy_open_options *options, struct sy_trainer **trainer,
                    struct sy_error *err)
{
    (void)path, (void)options;
    *trainer = NULL;
    return refuse(err);
}

void sy_trainer_close(struct sy_trainer *trainer)
{
    (void)trainer;
}

int sy_trainer_step(struct sy_trainer *trainer, const struct sy_pair *pairs, size_t n, struct sy_step *step,
                    struct sy_error *err)
{
    (void)trainer, (void)pairs, (void)n, (void)step;
    return refuse(err);
}

int sy_trainer_save(struct sy_trainer *trainer, const char *run_dir, struct sy_error *err)
{
    (void)trainer, (void)run_dir;
    return refuse(err);
}
