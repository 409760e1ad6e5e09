/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to move a run, of any bytes: what is taken has an id and lines that end, and sets keys of a run file or is
 * refused with a reason. */
#include "config.h"

#include <string.h>

#include "fuzz.h"
#include "train/launch/move_file.h"

static void check_line(const char *line, size_t bytes)
{
    FUZZ_REQUIRE(strnlen(line, bytes) < bytes && !strpbrk(line, "\n"));
}

static void check_apply(const struct syi_move *move)
{
    struct syi_config *config = syi_alloc(sizeof *config, NULL);
    struct sy_error err = {0};
    FUZZ_REQUIRE(config && !syi_config_defaults(config, NULL));
    int64_t steps = config->train.steps, threads = config->cpu.threads;
    FUZZ_REQUIRE(!syi_move_apply(move, config, &err) || err.text[0]);
    FUZZ_REQUIRE(config->train.steps == steps && config->cpu.threads == threads);
    syi_free(config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct syi_move move;
    struct sy_error err = {0};
    char *text = syi_format("%.*s", (int)size, (const char *)data);
    if (!text) return 0;
    if (syi_move_parse(text, &move, &err)) {
        FUZZ_REQUIRE(err.text[0]);
    } else {
        FUZZ_REQUIRE(move.id[0] && move.n_sets >= 0 && move.n_sets <= SYI_MOVE_SETS);
        check_line(move.id, sizeof move.id);
        check_line(move.backend, sizeof move.backend);
        for (int i = 0; i < move.n_sets; i++) check_line(move.set[i], sizeof move.set[i]);
        check_apply(&move);
    }
    syi_free(text);
    return 0;
}
