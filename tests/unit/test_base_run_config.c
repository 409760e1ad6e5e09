/* SPDX-License-Identifier: Apache-2.0 */
/* Run files: the table itself, values of every type, error texts, printing and loading back, comparing. */
#include "config.h"

#include <math.h>

#include "run_config_case.h"

static void expect_error(const char *text, const char *wanted)
{
    struct syi_config config = defaults(), before = config;
    struct sy_error err;
    cr_expect_eq(load(&config, text, &err), SY_EINVAL, "accepted: %s", text);
    cr_expect(strstr(err.text, wanted), "%s: wanted: %s", err.text, wanted);
    cr_expect_eq(memcmp(&config, &before, sizeof(config)), 0, "changed by: %s", text);
}

Test(run_config, tables_are_sound)
{
    size_t n, keys = 0;
    const struct syi_part_kind *kind = syi_config_kinds(&n);
    struct syi_config config = defaults();
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < kind[k].n_options; i++, keys++) {
            const char *part = kind[k].names == SYI_PART_NAMED ? "a" : "";
            char text[SYI_KEY], nearest[SYI_KEY], reason[SYI_REASON];
            struct syi_key key;
            syi_key_text(&kind[k], part, &kind[k].options[i], text);
            cr_assert_eq(syi_key_parse(text, &key, reason), SY_OK, "%s", reason);
            cr_expect_eq(key.option, &kind[k].options[i], "%s is there twice", text);
            cr_expect(syi_key_nearest(text, nearest));
            cr_expect_str_eq(nearest, text);
            cr_expect_gt(strlen(kind[k].options[i].help), 5);
        }
    cr_assert_gt(keys, 60);
    struct sy_error err = {0};
    cr_assert_eq(syi_config_validate(&config, &err), SY_OK, "%s", err.text);
    cr_assert_eq(config.model.vocab_size, 384);
    cr_assert_eq(config.model.mlp_activations, SYI_MLP_GELU_LINEAR);
    cr_assert(config.reproducible.enabled && config.action.n == 0);
}

/* It is copied on stacks and assigned. */
Test(run_config, a_configuration_is_not_large)
{
    cr_expect_leq(sizeof(struct syi_config), 512 << 10, "%zu bytes", sizeof(struct syi_config));
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
                               "[task.words]\n"
                               "train = \"a # b \\\"c\\\" \\u20ac.tsv\" # path\r\n"
                               "[data]\n"
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
    cr_assert_str_eq(config.task.part[0].train, "a # b \"c\" \xe2\x82\xac.tsv");
    cr_assert_eq(config.data.length_buckets.n, 3);
    cr_assert_eq(config.data.length_buckets.values[2], 64);
    cr_assert_eq(config.train.learning_rate, 1.0);
    cr_assert_eq(config.train.clip_norm, 0.5);
    cr_assert_eq(load(&config, "", &err), SY_OK);
}

Test(run_config, line_ends)
{
    static const char *const texts[] = {"# c\rmodel.d_ff = 99\r[train]\rsteps = 3\r",
                                        "# c\r\nmodel.d_ff = 99\r\n[train]\r\nsteps = 3",
                                        "# c\nmodel.d_ff = 99\r\n[train]\nsteps = 3\r"};
    struct sy_error err;
    for (size_t i = 0; i < SYI_COUNT(texts); i++) {
        struct syi_config config = defaults();
        cr_assert_eq(load(&config, texts[i], &err), SY_OK, "text %zu: %s", i, err.text);
        cr_expect_eq(config.model.d_ff, 99, "text %zu", i);
        cr_expect_eq(config.train.steps, 3, "text %zu", i);
    }
    expect_error("# c\rtrain.steps = 3\n", "t.run:1: a carriage return within the line");
    expect_error("# c\r\n\rtrain.steps = 3\n", "t.run:2: a carriage return within the line");
}

Test(run_config, unknown_names_get_a_suggestion)
{
    expect_error("[model]\ndmodel = 3", "t.run:2: unknown key model.dmodel, did you mean model.d_model?");
    expect_error("\n\nd_model = 3", "t.run:3: unknown key d_model, did you mean model.d_model?");
    expect_error("[train]\nd_model = 3", "unknown key train.d_model, did you mean model.d_model?");
    expect_error("[modle]\n", "t.run:1: unknown section [modle], did you mean [model]?");
    expect_error("[optimiser.slow]\n", "unknown section [optimiser.slow], did you mean [optimizer.slow]?");
    expect_error("[optimizer.slow]\nb3 = 3",
                 "unknown key optimizer.slow.b3, did you mean optimizer.slow.b1?");
    expect_error("[optimizer.slow]\nsteps = 3",
                 "unknown key optimizer.slow.steps, did you mean train.steps?");
    expect_error("train.stepz = 3", "did you mean train.steps?");
    expect_error("[moddle]\n", "unknown section [moddle], did you mean [model]?");
    expect_error("[nothing]\n", "unknown section [nothing] (`switchyard config` lists all)");
}

/* What people type: names of other programs, short forms, no section. NULL: nothing is near. */
Test(run_config, nearest_key)
{
    static const char *const rows[][2] = {
        {"beam", "decode.beams"},
        {"num_beams", "decode.beams"},
        {"num_layers", "model.num_encoder_layers"},
        {"heads", "model.num_heads"},
        {"dmodel", "model.d_model"},
        {"model.hidden_size", "model.d_model"},
        {"epochs", "train.steps"},
        {"train_steps", "train.steps"},
        {"modle.d_model", "model.d_model"},
        {"lr", "train.learning_rate"},
        {"learnrate", "train.learning_rate"},
        {"optimizer.lr", "train.learning_rate"},
        {"warmup", "train.warmup_steps"},
        {"seq_len", "data.max_input_length"},
        {"train.warm_up", "train.warmup_steps"},
        {"warm_up_steps", "train.warmup_steps"},
        {"max_len", "data.max_input_length"},
        {"data.max_target_len", "data.max_target_length"},
        {"batch", "data.batch_size"},
        {"decode.batch", "decode.batch_size"},
        {"bs", "data.batch_size"},
        {"temperature", "decode.temperature"},
        {"optim", "optimizer.name"},
        {"optimizer", "optimizer.name"},
        {"optimizer.adam_beta2", "optimizer.b2"},
        {"optimizer.beta2", "optimizer.b2"},
        {"optimizer.slow.beta_1", "optimizer.slow.b1"},
        {"max_source_length", "data.max_input_length"},
        {"model.d_kv", "model.head_dim"},
        {"feed_forward_proj", "model.mlp_activations"},
        {"moe.num_sparse_encoder_layers", "moe.num_encoder_sparse_layers"},
        {"validation_file", "task.NAME.valid"},
        {"source_prefix", "task.NAME.inputs"},
        {"task.words.source_prefix", "task.words.inputs"},
        {"valid", "task.NAME.valid"},
        {"top_k", "decode.topk"},
        {"moe.top_k", "moe.num_selected_experts"},
        {"num_experts_per_tok", "moe.num_selected_experts"},
        {"weight_decays", "optimizer.weight_decay"},
        {"wd", "optimizer.weight_decay"},
        {"optimizer.mask", "optimizer.weight_decay_mask"},
        {"optimizer.freeze", "optimizer.match"},
        {"trainable", "optimizer.match"},
        {"optimizer.slow.weight_decays", "optimizer.slow.weight_decay"},
        {"dropout", "model.dropout_rate"},
        {"vocab", "model.vocab_size"},
        {"experts", "moe.num_experts"},
        {"task.valid_file", NULL},
        {"color", NULL},
        {"x", NULL},
        {"", NULL},
        {"something.else.entirely", NULL},
    };
    for (size_t i = 0; i < SYI_COUNT(rows); i++) {
        char nearest[SYI_KEY];
        cr_expect_eq(syi_key_nearest(rows[i][0], nearest), rows[i][1] != NULL, "%s: %s", rows[i][0], nearest);
        cr_expect_str_eq(nearest, rows[i][1] ? rows[i][1] : "", "%s", rows[i][0]);
    }
    expect_error("color = 3", "unknown key color (`switchyard config` lists all)");
    expect_error("[decode]\ngeneration_max_length = 20",
                 "did you mean decode.max_length? It is one less than Hugging Face's");
    expect_error("max_length = 20", "did you mean decode.max_length? It is one less than Hugging Face's");
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
        {"model.dropout_rate = 1", "1 is not accepted: it takes a number in 0..0.9999999"},
        {"model.dropout_rate = 0.99999998", "is not accepted"}, /* 1 in float32 */
        {"moe.jitter_noise = 0.99999998", "is not accepted"},
        {"model.dropout_rate = nan", "nan is not accepted"},
        {"model.dropout_rate = -0.1", "-0.1 is not accepted"},
        {"optimizer.eps = -1", "a number in 0..1"},
        {"moe.extra_mlp = yes", "yes is not accepted: it takes true or false"},
        {"moe.extra_mlp = trueish", "trueish is not accepted"},
        {"train.schedule = \"step\"", "one of constant | linear | rsqrt | cosine"},
        {"train.schedule = linear", "a string in quotes was expected, as in \"text\""},
        {"train.schedule = \"lin\"", "is not accepted"},
        {"task.words.train = \"abc", "no closing \" on its line"},
        {"task.words.train = \"a\\q\"", "unknown escape"},
        {"task.words.train = \"a\\u0000\"", "unknown escape"},
        {"task.words.train = \"a\\", "unknown escape"},
        {"task.words.train = \"a\" b", "is not accepted: it takes a string"},
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
    memcpy(line, "task.words.train = \"", 20);
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
    cr_assert_eq(syi_config_set(&config, " task.words.train = my words.tsv", &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_config_set(&config, "model.mlp_activations=gelu", &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_config_set(&config, "run.name=\"quoted\"", &err), SY_OK, "%s", err.text);
    cr_assert_eq(config.model.d_model, 512);
    cr_assert_str_eq(config.task.part[0].train, "my words.tsv");
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
    } cases[] = {
        {"4GiB", 4LL << 30}, {"512", 512},   {"1 kB", 1000}, {"2MiB", 2 << 20},       {"4Gib", -1},
        {"9000000TiB", -1},  {"-1", -1},     {"GiB", -1},    {"\"4GiB\"", 4LL << 30}, {"\"2 MiB\"", 2 << 20},
        {"\"4GiB", -1},      {"4GiB\"", -1}, {"\"\"", -1}};
    const struct syi_option option = {
        .name = "y", .type = SYI_OPTION_SIZE, .default_text = "", .range = "0..", .bytes = sizeof(int64_t)};
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        int64_t bytes = -1;
        char reason[SYI_REASON];
        int status = syi_option_parse(&option, cases[i].text, false, &bytes, reason);
        cr_expect_eq(status == SY_OK, cases[i].bytes >= 0, "%s", cases[i].text);
        cr_expect_eq(bytes, cases[i].bytes, "%s", cases[i].text);
    }
}

Test(run_config, lists_of_strings)
{
    const struct syi_option option = {.name = "y",
                                      .type = SYI_OPTION_STRINGS,
                                      .default_text = "",
                                      .range = "",
                                      .bytes = sizeof(struct syi_strings)};
    struct syi_strings list = {0};
    struct syi_text out = {0};
    char reason[SYI_REASON], longest[SYI_CONFIG_STRINGS + 16] = "[";
    cr_assert_eq(syi_option_parse(&option, " [\"a,b\", \"\" ,\"c]\\\"\",] ", false, &list, reason), SY_OK,
                 "%s", reason);
    cr_assert_eq(list.n, 3);
    cr_expect_str_eq(syi_strings_at(&list, 0), "a,b");
    cr_expect_str_eq(syi_strings_at(&list, 1), "");
    cr_expect_str_eq(syi_strings_at(&list, 2), "c]\"");
    syi_option_print(&option, &list, &out);
    cr_expect_str_eq(out.data, "[\"a,b\", \"\", \"c]\\\"\"]");
    syi_text_free(&out);
    cr_expect_eq(syi_option_parse(&option, "[a]", false, &list, reason), SY_EINVAL);
    cr_expect(strstr(reason, "[a] is not accepted: it takes a list of strings"), "%s", reason);
    cr_expect_eq(list.n, 3, "a refused value leaves the field alone");
    cr_assert_eq(syi_option_parse(&option, "[*a* , \"b\"]", true, &list, reason), SY_OK, "%s", reason);
    cr_expect(list.n == 2 && !strcmp(syi_strings_at(&list, 0), "*a*"), "%s", list.text);
    cr_expect_eq(syi_option_parse(&option, "[a,,b]", true, &list, reason), SY_EINVAL);
    /* Strings of 7 bytes and a NUL fill the list. */
    for (int i = 0; i < SYI_CONFIG_STRINGS / 8; i++) strcat(longest, i ? ",seven__" : "seven__");
    strcat(longest, "]");
    cr_assert_eq(syi_option_parse(&option, longest, true, &list, reason), SY_OK, "%s", reason);
    cr_expect_eq(list.n, SYI_CONFIG_STRINGS / 8);
    strcpy(longest + strlen(longest) - 1, ",]");
    cr_assert_eq(syi_option_parse(&option, longest, true, &list, reason), SY_OK, "%s", reason);
    strcpy(longest + strlen(longest) - 1, "x]");
    cr_expect_eq(syi_option_parse(&option, longest, true, &list, reason), SY_EINVAL);
}

Test(run_config, lists_of_numbers)
{
    const struct syi_option option = {.name = "y",
                                      .type = SYI_OPTION_FLOATS,
                                      .default_text = "",
                                      .range = ">0..",
                                      .bytes = sizeof(struct syi_floats)};
    struct syi_floats list = {0};
    struct syi_text out = {0};
    char reason[SYI_REASON];
    cr_assert_eq(syi_option_parse(&option, "[1, 2.5e-3]", false, &list, reason), SY_OK, "%s", reason);
    cr_expect(list.n == 2 && list.values[0] == 1 && list.values[1] == 2.5e-3);
    syi_option_print(&option, &list, &out);
    cr_expect_str_eq(out.data, "[1.0, 0.0025]");
    syi_text_free(&out);
    cr_expect_eq(syi_option_parse(&option, "[1, 0]", false, &list, reason), SY_EINVAL);
    cr_expect(strstr(reason, "a list of up to 16 numbers like [0.5, 2.0], each in >0.."), "%s", reason);
    cr_expect_eq(syi_option_parse(&option, "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", false, &list, reason),
                 SY_EINVAL);
}

static int count_difference(void *arg, const char *key, enum syi_option_flags flags, const char *old_text,
                            const char *new_text)
{
    struct syi_text *seen = arg;
    syi_text_printf(seen, "%s %s %s %d\n", key, old_text, new_text, (int)flags);
    return SY_OK;
}

Test(run_config, prints_what_loads_again)
{
    struct syi_config config = defaults(), back = defaults();
    struct syi_text seen = {0};
    struct sy_error err = {0};
    cr_assert_eq(load(&config,
                      "task.words.train = \"a\\t\\\"\\\\ \\u0001\"\ndata.length_buckets = [8, 64]\n"
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

/* ---- parts with names ---- */

static const char two_optimizers[] = "[optimizer.slow]\n"
                                     "b1 = 0.5\n"
                                     "match = [\"*embedding*\"]\n"
                                     "[optimizer]\n"
                                     "b1 = 0.8\n"
                                     "[optimizer.A-1_b]\n"
                                     "name = \"adafactor\"\n";

Test(run_config, parts_are_read_in_the_order_of_the_file)
{
    struct syi_config config = defaults();
    struct sy_error err = {0};
    cr_assert_eq(config.optimizer.n, 1);
    cr_assert_eq(load(&config, two_optimizers, &err), SY_OK, "%s", err.text);
    cr_assert_eq(config.optimizer.n, 3);
    cr_expect_str_eq(config.optimizer.part[0].name_of_part, "");
    cr_expect_eq(config.optimizer.part[0].b1, 0.8);
    cr_expect_str_eq(config.optimizer.part[1].name_of_part, "slow");
    cr_expect_eq(config.optimizer.part[1].b1, 0.5);
    cr_expect(isnan(config.optimizer.part[1].b2), "what is not given is auto: not a number");
    cr_expect_str_eq(syi_strings_at(&config.optimizer.part[1].match, 0), "*embedding*");
    cr_expect_str_eq(config.optimizer.part[2].name_of_part, "A-1_b");
    cr_expect_eq(config.optimizer.part[2].name, SYI_OPTIMIZER_ADAFACTOR);
}

Test(run_config, parts_are_printed_as_they_load_again)
{
    struct syi_config config = defaults(), back = defaults();
    struct syi_text out = {0}, seen = {0};
    struct sy_error err = {0};
    cr_assert_eq(load(&config, two_optimizers, &err), SY_OK, "%s", err.text);
    syi_config_print(&config, false, &out);
    cr_assert_eq(load(&back, out.data, &err), SY_OK, "%s", err.text);
    back.optimizer.given = config.optimizer.given; /* all keys are printed */
    back.vocabulary.given = config.vocabulary.given;
    cr_expect_eq(memcmp(&config, &back, sizeof(config)), 0);
    cr_assert_eq(syi_config_compare(&config, &back, count_difference, &seen, NULL), SY_OK);
    cr_expect_eq(seen.length, 0, "%s", seen.data);
    syi_text_free(&out);
    cr_assert_eq(syi_config_get_text(&config, "optimizer.slow.b1", &out, &err), SY_OK);
    cr_expect_str_eq(out.data, "0.5");
    cr_assert_eq(syi_config_get_text(&config, "optimizer.fast.b1", &out, &err), SY_EINVAL);
    cr_expect(strstr(err.text, "there is no [optimizer.fast]"), "%s", err.text);
    syi_text_free(&out);
}

Test(run_config, set_makes_a_part_that_is_new)
{
    struct syi_config config = defaults(), before;
    struct sy_error err = {0};
    cr_assert_eq(syi_config_set(&config, "optimizer.slow.b1=0.5", &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_config_set(&config, "optimizer.slow.match=[*a*, *b*]", &err), SY_OK, "%s", err.text);
    cr_assert_eq(config.optimizer.n, 2);
    cr_expect(config.optimizer.part[1].b1 == 0.5 && config.optimizer.part[1].match.n == 2);
    before = config;
    cr_assert_eq(syi_config_set(&config, "optimizer.fast.b1=2", &err), SY_EINVAL);
    cr_expect(strstr(err.text, "optimizer.fast.b1: 2 is not accepted"), "%s", err.text);
    cr_expect_eq(memcmp(&config, &before, sizeof(config)), 0, "a refused value makes no part");
}

Test(run_config, names_of_parts)
{
    char many[2000] = "", longest[80];
    expect_error("[model.a]\n", "t.run:1: there is one [model], which has no name: leave .a out");
    expect_error("model.a.d_model = 3", "there is one [model], which has no name");
    expect_error("[optimizer.]\n", "a name is 1 to 63 letters, digits, '_' or '-'");
    expect_error("[optimizer.a b]\n", "[optimizer.a b]: a name is");
    expect_error("[optimizer.a.b]\nb1 = 0.5", "[optimizer.a.b]: a name is");
    snprintf(longest, sizeof(longest), "[optimizer.%064d]\n", 1);
    expect_error(longest, "a name is 1 to 63");
    expect_error("[optimizer.a]\nb1 = 0.5\n[optimizer.b]\n[optimizer.a]\nb1 = 0.6",
                 "t.run:5: optimizer.a.b1 is set already on line 2");
    for (int i = 0; i < SYI_CONFIG_PARTS; i++)
        snprintf(many + strlen(many), sizeof(many) - strlen(many), "[optimizer.p%d]\n", i);
    expect_error(many, "t.run:16: [optimizer.p15] is one too many: at most 16 parts");
}

Test(run_config, old_keys_name_the_new)
{
    struct syi_config config = defaults();
    struct sy_error err = {0};
    expect_error("[train]\nadam_b1 = 0.5", "t.run:2: train.adam_b1 is now optimizer.b1");
    expect_error("train.weight_decay = 0.5", "train.weight_decay is now optimizer.weight_decay");
    expect_error("data.vocabulary = \"bytes\"", "data.vocabulary is now vocabulary.kind");
    expect_error("train.early_stopping_metric = \"wer\"",
                 "is now metric of an [action.NAME] of kind early_stopping");
    expect_error("train.terminate_on_nan = false", "is now an [action.NAME] of kind terminate_on_nan");
    expect_error("[action]\n", "[action] needs a name of its own: write [action.NAME]");
    expect_error("data.task = \"tsv\"", "data.task is now task.NAME.format");
    expect_error("[data]\ntrain = \"a.tsv\"", "t.run:2: data.train is now task.NAME.train");
    cr_assert_eq(syi_config_set(&config, "train.optimizer=adamw", &err), SY_EINVAL);
    cr_expect(strstr(err.text, "train.optimizer is now optimizer.name"), "%s", err.text);
}

static void expect_differences(const char *before, const char *after, const char *wanted)
{
    struct syi_config a = defaults(), b = defaults();
    struct syi_text seen = {0};
    struct sy_error err = {0};
    cr_assert_eq(load(&a, before, &err), SY_OK, "%s", err.text);
    cr_assert_eq(load(&b, after, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_config_compare(&a, &b, count_difference, &seen, &err), SY_OK);
    cr_expect_str_eq(seen.data ? seen.data : "", wanted);
    syi_text_free(&seen);
}

/* 0: listed on resume, 1: refused, as the gravest of the part's options. */
Test(run_config, parts_are_compared_by_name)
{
    expect_differences("[optimizer.a]\nb1 = 0.5\n[optimizer.b]\nb1 = 0.6",
                       "[optimizer.a]\nb1 = 0.5\n[optimizer.b]\nb1 = 0.7", "optimizer.b.b1 0.6 0.7 0\n");
    expect_differences("[optimizer.a]\nb1 = 0.5", "[optimizer.b]\nb1 = 0.5",
                       "[optimizer.*] [optimizer] [optimizer.a] [optimizer] [optimizer.b] 1\n");
    expect_differences("[optimizer.a]\nb1 = 0.5", "",
                       "[optimizer.*] [optimizer] [optimizer.a] [optimizer] 1\n");
    expect_differences("[optimizer.a]\n[optimizer.b]\nb1 = 0.5", "[optimizer.b]\nb1 = 0.6\n[optimizer.a]\n",
                       "[optimizer.*] [optimizer] [optimizer.a] [optimizer.b] [optimizer] [optimizer.b] "
                       "[optimizer.a] 1\noptimizer.b.b1 0.5 0.6 0\n");
}
