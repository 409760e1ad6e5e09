/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of gin files on any bytes: what it takes is a sound tree, and its run file loads. */
#include "config.h"

#include <string.h>

#include "base/run_config.h"
#include "fuzz.h"
#include "import/gin.h"

static void look(const struct syi_gin *gin)
{
    for (size_t i = 0; i < gin->n_nodes; i++) {
        const struct syi_gin_node *node = &gin->nodes[i];
        uint32_t seen = 0;
        FUZZ_REQUIRE(node->text < gin->string_bytes);
        for (uint32_t child = node->first; child != SYI_GIN_NONE; child = gin->nodes[child].next, seen++)
            FUZZ_REQUIRE(child < gin->n_nodes && seen < gin->n_nodes);
        FUZZ_REQUIRE(seen == node->children && (node->kind != SYI_GIN_DICT || seen % 2 == 0));
    }
    for (size_t i = 0; i < gin->n_bindings; i++) {
        uint32_t value = syi_gin_resolve(gin, gin->bindings[i].value);
        FUZZ_REQUIRE(gin->bindings[i].value < gin->n_nodes && gin->bindings[i].name < gin->string_bytes);
        FUZZ_REQUIRE(value == SYI_GIN_NONE || gin->nodes[value].kind != SYI_GIN_MACRO);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct syi_config config;
    struct syi_gin gin = {0};
    struct syi_text run = {0}, warnings = {0};
    struct sy_error err = {0};
    int status = syi_gin_parse(&gin, "input", (const char *)data, size, 0, &err);
    FUZZ_REQUIRE(status == SY_OK || (status == SY_EFORMAT && !strncmp(err.text, "input:", 6)));
    if (!status) {
        look(&gin);
        FUZZ_REQUIRE(syi_gin_convert(&gin, "input", &run, &warnings, &err) == SY_OK);
        FUZZ_REQUIRE(syi_config_defaults(&config, &err) == SY_OK);
        FUZZ_REQUIRE(syi_config_load_text(&config, "output", run.data, run.length, &err) == SY_OK);
    }
    syi_text_free(&run);
    syi_text_free(&warnings);
    syi_gin_free(&gin);
    return 0;
}
