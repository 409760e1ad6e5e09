/* SPDX-License-Identifier: Apache-2.0 */
/* Run files: the table itself, values of every type, error texts, printing and loading back, comparing, cross
 * checks. */
#include "config.h"

#include <criterion/criterion.h>
#include <string.h>

#include "base/run_config.h"

static struct syi_config defaults(void)
{
    static struct syi_config config;
    struct sy_error err = {0};
    cr_assert_eq(syi_config_defaults(&config, &err), SY_OK, "%s", err.text);
    return config;
}

static int load(struct syi_config *config, const char *text, struct sy_error *err)
{
    memset(err, 0, sizeof(*err));
    return syi_config_load_text(config, "t.run", text, strlen(text), err);
}

static void expect_error(const char *text, const char *wanted)
{
    struct syi_config config = defaults(), before = config;
    struct sy_error err;
    cr_expect_eq(load(&config, text, &err), SY_EINVAL, "accepted: %s", text);
    cr_expect(strstr(err.text, wanted), "%s: wanted: %s", err.text, wanted);
    cr_expect_eq(memcmp(&config, &before, sizeof(config)), 0, "changed by: %s", text);
}

Test(run_config, table_is_sound)
{
    size_t n;
    const struct syi_option *options = syi_config_options(&n);
    struct syi_config config = defaults();
    cr_assert_gt(n, 60);
    for (size_t i = 0; i < n; i++) {
        cr_expect_eq(syi_config_find(options[i].key), &options[i], "%s is there twice", options[i].key);
        cr_expect_str_eq(syi_config_nearest(options[i].key), options[i].key);
        cr_expect_gt(strlen(options[i].help), 5);
    }
    struct sy_error err = {0};
    cr_assert_eq(syi_config_validate(&config, &err), SY_OK, "%s", err.text);
    cr_assert_eq(config.model.vocab_size, 384);
    cr_assert_eq(config.model.mlp_activations, SYI_MLP_GELU_LINEAR);
    cr_assert(config.train.terminate_on_nan && config.reproducible.enabled);
}

Test(run_config, reads_every_type)
{
    struct syi_config config = defaults();
    struct sy_error err;
    static const char text[] = "\xef\xbb\xbf# a comment\r\n"
                               "model.d_ff = 1_024 # dotted\n"
                               "\n"
                               "  [ model ]  # header\n"
                               "d_model=512\n"
                               "\tlayer_norm_epsilon = 1e-5\t\n"
                               "mlp_activations = \"gelu\"\n"
                               "logits_via_embedding = true\n"
                               "[data]\n"
                               "train = \"a # b \\\"c\\\" \\u20ac.tsv\" # path\r\n"
                               "length_buckets = [ 16,24, 64 ,]\n"
                               "[train]\n"
                               "learning_rate = 1\n"
                               "clip_norm = +0.5";
    cr_assert_eq(load(&config, text, &err), SY_OK, "%s", err.text);
    cr_assert_eq(config.model.d_ff, 1024);
    cr_assert_eq(config.model.d_model, 512);
    cr_assert_eq(config.model.layer_norm_epsilon, 1e-5);
    cr_assert_eq(config.model.mlp_activations, SYI_MLP_GELU);
    cr_assert(config.model.logits_via_embedding);
    cr_assert_str_eq(config.data.train, "a # b \"c\" \xe2\x82\xac.tsv");
    cr_assert_eq(config.data.length_buckets.n, 3);
    cr_assert_eq(config.data.length_buckets.values[2], 64);
    cr_assert_eq(config.train.learning_rate, 1.0);
    cr_assert_eq(config.train.clip_norm, 0.5);
    cr_assert_eq(load(&config, "", &err), SY_OK);
}

Test(run_config, unknown_names_get_a_suggestion)
{
    expect_error("[model]\ndmodel = 3", "t.run:2: unknown key model.dmodel, did you mean model.d_model?");
    expect_error("\n\nd_model = 3", "t.run:3: unknown key d_model, did you mean model.d_model?");
    expect_error("[train]\nd_model = 3", "unknown key train.d_model, did you mean model.d_model?");
    expect_error("[modle]\n", "t.run:1: unknown section [modle], did you mean [model]?");
    expect_error("train.stepz = 3", "did you mean train.steps?");
}

Test(run_config, bad_values_name_value_and_range)
{
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"model.d_model = 0", "t.run:1: model.d_model: 0 is not accepted: it takes an integer in 1..1048576"},
        {"model.d_model = \"8\"", "\"8\" is not accepted: it takes an integer"},
        {"model.d_model = 8.0", "8.0 is not accepted"},
        {"model.d_model = 8 9", "8 9 is not accepted"},
        {"model.d_model = 1__0", "1__0 is not accepted"},
        {"model.d_model = _1", "_1 is not accepted"},
        {"model.d_model = 1_", "1_ is not accepted"},
        {"model.d_model = 99999999999999999999", "is not accepted"},
        {"model.d_model = ", "an empty value is not accepted"},
        {"model.d_model = 0x10", "0x10 is not accepted"},
        {"model.dropout_rate = 1", "1 is not accepted: it takes a number in 0..<1"},
        {"model.dropout_rate = nan", "nan is not accepted"},
        {"model.dropout_rate = -0.1", "-0.1 is not accepted"},
        {"train.adam_eps = 0", "a number in >0..1"},
        {"train.terminate_on_nan = yes", "yes is not accepted: it takes true or false"},
        {"train.terminate_on_nan = trueish", "trueish is not accepted"},
        {"train.schedule = \"step\"", "one of constant | linear | rsqrt | cosine"},
        {"train.schedule = linear", "a string in double quotes was expected"},
        {"train.schedule = \"lin\"", "is not accepted"},
        {"data.train = \"abc", "no closing double quote"},
        {"data.train = \"a\\q\"", "unknown escape"},
        {"data.train = \"a\\u0000\"", "unknown escape"},
        {"data.train = \"a\\", "unknown escape"},
        {"data.train = \"a\" b", "is not accepted: it takes a string"},
        {"data.length_buckets = [16, 1]", "[16, 1] is not accepted"},
        {"data.length_buckets = [16", "[16 is not accepted"},
        {"data.length_buckets = [16 17]", "is not accepted"},
        {"data.length_buckets = 16", "16 is not accepted: it takes a list"},
        {"data.length_buckets = [2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2]", "up to 16"},
        {"train.steps = 1\n[train]\nsteps = 2", "t.run:3: train.steps is set already on line 1"},
        {"hello", "t.run:1: neither [section] nor key = value: hello"},
        {"= 3", "a key is missing"},
        {"[model", "a section is written [name]"},
    };
    for (size_t i = 0; i < SYI_COUNT(cases); i++) expect_error(cases[i].text, cases[i].wanted);
}

Test(run_config, hostile_files)
{
    struct syi_config config = defaults();
    struct sy_error err = {0};
    static char line[100000];
    cr_assert_eq(syi_config_load_text(&config, "t.run", "a\0b\n", 4, &err), SY_EINVAL);
    cr_assert(strstr(err.text, "NUL byte"));
    memset(line, 'x', sizeof(line) - 1);
    expect_error(line, "neither [section]");
    line[50000] = '=';
    expect_error(line, "unknown key");
    line[0] = '[';
    line[sizeof(line) - 2] = ']';
    expect_error(line, "unknown section");
    memcpy(line, "data.train = \"", 14);
    expect_error(line, "longer than 1023 bytes");
    memset(&err, 0, sizeof(err));
    cr_assert_eq(syi_config_load(&config, "/tmp/switchyard-test-none.run", &err), SY_ENOENT);
    cr_assert(strstr(err.text, "/tmp/switchyard-test-none.run"));
}

Test(run_config, set_takes_bare_strings)
{
    struct syi_config config = defaults();
    struct sy_error err = {0};
    cr_assert_eq(syi_config_set(&config, "model.d_model=512", &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_config_set(&config, " data.train = my words.tsv", &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_config_set(&config, "model.mlp_activations=gelu", &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_config_set(&config, "run.name=\"quoted\"", &err), SY_OK, "%s", err.text);
    cr_assert_eq(config.model.d_model, 512);
    cr_assert_str_eq(config.data.train, "my words.tsv");
    cr_assert_eq(config.model.mlp_activations, SYI_MLP_GELU);
    cr_assert_str_eq(config.run.name, "quoted");
    cr_assert_eq(syi_config_set(&config, "model.dmodel=512", &err), SY_EINVAL);
    cr_assert(strstr(err.text, "did you mean model.d_model?"), "%s", err.text);
    memset(&err, 0, sizeof(err));
    cr_assert_eq(syi_config_set(&config, "model.d_model", &err), SY_EINVAL);
    cr_assert(strstr(err.text, "SECTION.KEY=VALUE"));
    memset(&err, 0, sizeof(err));
    cr_assert_eq(syi_config_set(&config, "model.d_model=-1", &err), SY_EINVAL);
    cr_assert(strstr(err.text, "1..1048576"), "%s", err.text);
    cr_assert_eq(config.model.d_model, 512);
}

Test(run_config, sizes)
{
    static const struct {
        const char *text;
        int64_t bytes; /* -1: refused */
    } cases[] = {{"4GiB", 4LL << 30}, {"512", 512},       {"1 kB", 1000}, {"2MiB", 2 << 20},
                 {"4Gib", -1},        {"9000000TiB", -1}, {"-1", -1},     {"GiB", -1}};
    const struct syi_option option = {
        .key = "x.y", .type = SYI_OPTION_SIZE, .range = "0..", .bytes = sizeof(int64_t)};
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        int64_t bytes = -1;
        char reason[SYI_REASON];
        int status = syi_option_parse(&option, cases[i].text, false, &bytes, reason);
        cr_expect_eq(status == SY_OK, cases[i].bytes >= 0, "%s", cases[i].text);
        cr_expect_eq(bytes, cases[i].bytes, "%s", cases[i].text);
    }
}

static int count_difference(void *arg, const struct syi_option *option, const char *old_text,
                            const char *new_text)
{
    struct syi_text *seen = arg;
    syi_text_printf(seen, "%s %s %s %d\n", option->key, old_text, new_text, (int)option->flags);
    return SY_OK;
}

Test(run_config, prints_what_loads_again)
{
    struct syi_config config = defaults(), back = defaults();
    struct syi_text seen = {0};
    struct sy_error err = {0};
    cr_assert_eq(load(&config,
                      "data.train = \"a\\t\\\"\\\\ \\u0001\"\ndata.length_buckets = [8, 64]\n"
                      "train.learning_rate = 0.3333333333333333\nrun.name = \"x\"",
                      &err),
                 SY_OK, "%s", err.text);
    for (int help = 0; help < 2; help++) {
        struct syi_text out = {0};
        syi_config_print(&config, help, &out);
        cr_assert_eq(syi_text_status(&out, NULL), SY_OK);
        cr_assert_eq(load(&back, out.data, &err), SY_OK, "%s", err.text);
        cr_assert_eq(syi_config_compare(&config, &back, count_difference, &seen, NULL), SY_OK);
        cr_assert_eq(seen.length, 0, "%s", seen.data);
        cr_assert_eq(
            !strstr(out.data, "# Width of the residual stream.\n# (an integer in 1..1048576; default 128)\n"),
            !help);
        syi_text_free(&out);
    }
}

Test(run_config, compares_and_gives_text)
{
    struct syi_config a = defaults(), b = defaults();
    struct syi_text seen = {0};
    struct sy_error err = {0};
    b.model.d_model = 512;
    b.cpu.threads = 2;
    b.train.learning_rate = 0.5;
    cr_assert_eq(syi_config_compare(&a, &b, count_difference, &seen, &err), SY_OK);
    cr_assert_str_eq(seen.data,
                     "model.d_model 128 512 1\ntrain.learning_rate 0.001 0.5 0\ncpu.threads 0 2 2\n");
    syi_text_free(&seen);
    cr_assert_eq(syi_config_get_text(&b, "train.learning_rate", &seen, &err), SY_OK);
    cr_assert_str_eq(seen.data, "0.5");
    cr_assert_eq(syi_config_get_text(&b, "train.learning_rat", &seen, &err), SY_EINVAL);
    cr_assert(strstr(err.text, "did you mean train.learning_rate?"));
    syi_text_free(&seen);
}

Test(run_config, cross_checks)
{
    static const struct {
        const char *text, *wanted; /* wanted NULL: all well */
    } cases[] = {
        {"moe.num_experts = 4", NULL},
        {"moe.num_encoder_sparse_layers = 2", NULL}, /* dense: not looked at */
        {"moe.num_experts = 4\nmoe.num_encoder_sparse_layers = 2",
         "must divide model.num_encoder_layers = 3"},
        {"moe.num_experts = 4\nmoe.num_encoder_sparse_layers = 2\nmoe.encoder_sparse_layout = \"TOP\"", NULL},
        {"moe.num_experts = 4\nmoe.num_decoder_sparse_layers = 2",
         "is more than model.num_decoder_layers = 1"},
        {"moe.num_experts = 4\nmoe.num_encoder_sparse_layers = 0", "no layer has experts"},
        {"moe.num_experts = 2\nmoe.num_selected_experts = 3", "is more than moe.num_experts = 2"},
        {"moe.num_experts = 4\nmodel.num_encoder_layers = 300\nmoe.num_encoder_sparse_layers = 300",
         "at most 256 layers can have experts"},
        {"moe.num_experts = 4\nmoe.train_capacity_factor = 1e-9\nmoe.min_expert_capacity = 0",
         "moe.train_capacity_factor = 1e-09 gives none of 4 experts a place"},
        {"moe.num_experts = 4\nmoe.eval_capacity_factor = 1e-9\nmoe.min_expert_capacity = 0",
         "moe.eval_capacity_factor = 1e-09 gives none of 4 experts a place"},
        {"moe.num_experts = 4\nmoe.train_capacity_factor = 1e-9\nmoe.min_expert_capacity = 1", NULL},
        {"moe.num_experts = 4\nmoe.train_capacity_factor = 0\nmoe.min_expert_capacity = 0", NULL},
        {"model.relpos_num_buckets = 33", "must be even"},
        {"model.relpos_max_distance = 16", "more than half"},
        {"train.microbatches = 3", "must divide data.batch_size = 64"},
        {"moe.num_experts = 4\nmoe.group_rows = 48", "must divide the 64 rows"},
        {"data.warm_examples = 5", "needs data.warm_max_target"},
        {"data.length_buckets = [16, 16, 64]", "must ascend"},
        {"data.length_buckets = [16, 24]", "end at 24"},
        {"data.length_buckets = [16, 64]", NULL},
        {"run.name = \"a/b\"", "run.name"},
        {"run.name = \"\"", "run.name"},
        {"reproducible.blocks = 6", "power of two"},
        {"train.early_stopping_patience = 2", "needs a file in data.valid"},
    };
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct syi_config config = defaults();
        struct sy_error err = {0};
        cr_assert_eq(load(&config, cases[i].text, &err), SY_OK, "%s", err.text);
        int status = syi_config_validate(&config, &err);
        cr_expect_eq(status, cases[i].wanted ? SY_EINVAL : SY_OK, "%s: %s", cases[i].text, err.text);
        if (cases[i].wanted)
            cr_expect(strstr(err.text, cases[i].wanted), "%s: wanted: %s", err.text, cases[i].wanted);
    }
}

/* Rows of an evaluation follow the training's microbatch, and divide as it does among the parts of the mesh.
 */
Test(run_config, rows_of_evaluation)
{
    static const struct {
        int64_t batch, microbatches, data, expert, given, rows;
    } cases[] = {{8, 1, 0, 0, 0, 8},   {128, 1, 0, 0, 0, 64},  {64, 16, 0, 0, 0, 8},
                 {24, 1, 0, 0, 0, 24}, {2048, 2, 0, 0, 0, 64}, {2048, 1, 128, 0, 0, 128},
                 {96, 1, 2, 4, 0, 48}, {100, 1, 0, 0, 0, 50},  {67, 1, 0, 0, 0, 67},
                 {2, 2, 0, 0, 0, 8},   {6, 2, 0, 3, 0, 12},    {8, 1, 0, 0, 5, 5}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct syi_config config = defaults();
        config.data.batch_size = cases[i].batch;
        config.train.microbatches = cases[i].microbatches;
        config.mesh.data = cases[i].data;
        config.mesh.expert = cases[i].expert;
        config.decode.batch_size = cases[i].given;
        cr_expect_eq(syi_config_decode_rows(&config), cases[i].rows, "case %zu: %lld", i,
                     (long long)syi_config_decode_rows(&config));
    }
}
