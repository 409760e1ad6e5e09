/* SPDX-License-Identifier: Apache-2.0 */
/* Run files whose values are each in range: what they mean together, and what is refused. */
#include "config.h"

#include "run_config_case.h"

/* What a run file says, and what is wrong with it. */
static const struct {
    const char *text, *wanted; /* wanted NULL: all well */
} cross_checks[] = {
    {"moe.num_experts = 4", NULL},
    {"moe.num_encoder_sparse_layers = 2", NULL}, /* dense: not looked at */
    {"moe.num_experts = 4\nmoe.num_encoder_sparse_layers = 2", "must divide model.num_encoder_layers = 3"},
    {"moe.num_experts = 4\nmoe.num_encoder_sparse_layers = 2\nmoe.encoder_sparse_layout = \"TOP\"", NULL},
    {"moe.num_experts = 4\nmoe.num_decoder_sparse_layers = 2", "is more than model.num_decoder_layers = 1"},
    {"moe.num_experts = 4\nmoe.num_encoder_sparse_layers = 0", "no layer has experts"},
    {"moe.num_experts = 4\nmoe.encoder_sparse_layers = [0, 2]\nmoe.decoder_sparse_layers = [0]", NULL},
    {"moe.num_experts = 4\nmoe.encoder_sparse_layers = [0, 3]", "there is no layer 3"},
    {"moe.num_experts = 4\nmoe.encoder_sparse_layers = [1, 1]", "must ascend: 1 stands after 1"},
    {"moe.num_experts = 4\nmoe.encoder_sparse_layers = [0, 2]\nmoe.num_encoder_sparse_layers = 2",
     "moe.num_encoder_sparse_layers: moe.encoder_sparse_layers lists the layers that have experts: leave it out"},
    {"moe.num_experts = 4\nmoe.decoder_sparse_layers = [0]\nmoe.decoder_sparse_layout = \"TOP\"",
     "moe.decoder_sparse_layout: moe.decoder_sparse_layers lists"},
    {"moe.num_experts = 4\nmoe.num_encoder_sparse_layers = 0\nmoe.decoder_sparse_layers = [0]\n"
     "moe.decoder_router_type = \"experts_choose_masked\"",
     "depends on later ones"},
    {"moe.num_experts = 4\nmoe.expert_capacity = 2\nmoe.min_expert_capacity = 0", NULL},
    {"moe.expert_capacity = 2\nmoe.group_rows = 2", NULL}, /* dense: not looked at */
    {"moe.num_experts = 4\nmoe.expert_capacity = 2\nmoe.group_rows = 2", "take moe.group_rows = 1 with it"},
    {"moe.num_experts = 4\nmoe.expert_capacity = 2\nrun.compat = \"t5x\"",
     "take moe.group_by = \"rows\" with it"},
    {"moe.num_experts = 4\nmoe.expert_capacity = 2\nmoe.router_type = \"experts_choose_masked\"",
     "take a router by which tokens choose with it"},
    {"moe.num_experts = 4\nmoe.group_rows = 3\nmoe.group_by = \"tokens\"", "take moe.max_group_size"},
    {"moe.num_experts = 4\nmoe.group_rows = 2\nrun.compat = \"t5x\"", "take moe.max_group_size"},
    {"moe.num_experts = 4\nmoe.group_rows = 0\nrun.compat = \"t5x\"", NULL}, /* as run.conf has it */
    {"moe.num_experts = 4\nmoe.ignore_padding_tokens = \"false\"\nmoe.capacity_tokens = \"real\"",
     "moe.capacity_tokens = \"real\": moe.ignore_padding_tokens is false"},
    {"moe.num_experts = 4\nmoe.router_loss_tokens = \"real\"\nrun.compat = \"t5x\"",
     "moe.router_loss_tokens = \"real\": moe.ignore_padding_tokens is false"},
    {"moe.num_experts = 4\nmoe.ignore_padding_tokens = \"false\"\nmoe.capacity_tokens = \"all\"", NULL},
    {"run.compat = \"t5x\"\nmoe.num_experts = 4\nmoe.ignore_padding_tokens = \"true\"\nmoe.capacity_tokens = \"real\"\n"
     "moe.router_type = \"tokens_choose_scatter\"",
     "the encoder's router gives padding to experts, too"},
    {"run.compat = \"t5x\"\nmoe.num_experts = 4\nmoe.ignore_padding_tokens = \"true\"\nmoe.capacity_tokens = \"real\"\n"
     "moe.router_type = \"tokens_choose_scatter\"\nmoe.router_loss_tokens = \"real\"",
     NULL},
    {"run.compat = \"t5x\"\nmoe.num_experts = 4\nmoe.ignore_padding_tokens = \"true\"\nmoe.capacity_tokens = \"real\"",
     NULL},
    {"moe.num_experts = 4\nmoe.capacity_tokens = \"real\"\nmoe.router_loss_tokens = \"real\"", NULL},
    {"moe.num_experts = 2\nmoe.num_selected_experts = 3", "is more than moe.num_experts = 2"},
    {"moe.num_experts = 4\nmoe.train_capacity_factor = 1e-9\nmoe.min_expert_capacity = 0",
     "moe.train_capacity_factor = 1e-09 gives none of 4 experts a place"},
    {"moe.num_experts = 4\nmoe.eval_capacity_factor = 1e-9\nmoe.min_expert_capacity = 0",
     "moe.eval_capacity_factor = 1e-09 gives none of 4 experts a place"},
    {"moe.num_experts = 4\nmoe.train_capacity_factor = 1e-9\nmoe.min_expert_capacity = 1", NULL},
    {"moe.num_experts = 4\nmoe.train_capacity_factor = 0\nmoe.min_expert_capacity = 0", NULL},
    {"model.relpos_num_buckets = 33", "must be even"},
    {"model.decoder_start_token_id = 384", "model.decoder_start_token_id = 384 is no id"},
    {"model.relpos_max_distance = 16", "more than half"},
    {"train.microbatches = 3", "must divide data.batch_size = 64"},
    {"moe.num_experts = 4\nmoe.group_rows = 48", "must divide the 64 rows"},
    {"data.warm_examples = 5", "needs data.warm_max_target"},
    {"data.length_buckets = [16, 16, 64]", "must ascend"},
    {"data.length_buckets = [16, 24]", "end at 24"},
    {"data.length_buckets = [16, 64]", NULL},
    {"run.name = \"a/b\"", "run.name"},
    {"run.name = \"\"", "run.name"},
    {"run.name = \"../x\"", "run.name"},
    {"moe.num_experts = 4\nmoe.num_decoder_sparse_layers = 1\n"
     "moe.decoder_router_type = \"experts_choose_masked\"",
     "depends on later ones"},
    {"mesh.expert = 2", "leave mesh.expert out"},
    {"optimizer.match = [\"*\"]", "[optimizer] updates all parameters that no named one matches"},
    {"optimizer.name = \"sgd\"\noptimizer.b1 = 0.5",
     "optimizer.b1 means nothing to sgd, which takes momentum=0.0 nesterov"},
    {"optimizer.name = \"sgd\"\noptimizer.nesterov = true\noptimizer.momentum = 0.5", NULL},
    {"optimizer.name = \"adafactor\"\noptimizer.weight_decay_mask = [\"*kernel\"]",
     "optimizer.weight_decay_mask means nothing to adafactor"},
    {"optimizer.b2 = 1.0", "optimizer.b2 of adamw: 1.0 is not accepted: it takes a number in 0..<1"},
    {"optimizer.name = \"lamb\"\noptimizer.b2 = 1.0", "optimizer.b2 of lamb: 1.0 is not accepted"},
    {"optimizer.name = \"muon\"\noptimizer.b2 = 1.0", "optimizer.b2 of muon: 1.0 is not accepted"},
    {"optimizer.name = \"schedule_free\"\noptimizer.b2 = 1.0", "optimizer.b2 of schedule_free: 1.0"},
    {"[optimizer.a]\nmatch = [\"*\"]\nname = \"yogi\"\nb2 = 1",
     "optimizer.a.b2 of yogi: 1.0 is not accepted"},
    {"optimizer.name = \"sm3\"\noptimizer.b2 = 0", "optimizer.b2 of sm3: 0.0 is not accepted"},
    {"optimizer.name = \"sm3\"\noptimizer.b2 = 1.0", NULL},
    {"optimizer.name = \"muon\"\noptimizer.newton_schulz_steps = 2.7",
     "optimizer.newton_schulz_steps = 2.7: it takes a whole number"},
    {"optimizer.name = \"sgd\"\noptimizer.nesterov = true", "optimizer.nesterov: there is no momentum"},
    {"optimizer.name = \"lars\"\noptimizer.nesterov = true", NULL},
    {"optimizer.name = \"adafactor\"\noptimizer.dtype_momentum = \"bfloat16\"",
     "optimizer.dtype_momentum: there is no momentum to keep: set optimizer.beta1"},
    {"optimizer.name = \"none\"\noptimizer.lr_factors = \"constant\"",
     "optimizer.lr_factors: the parameters of this section stay as they are"},
    {"optimizer.b1 = 0.5\n[optimizer.a]\nmatch = [\"*\"]",
     "optimizer.b1: the parameters of this section stay as they are (optimizer.name = \"none\", which is so beside named"},
    {"optimizer.name = \"adamw\"\noptimizer.b1 = 0.5\n[optimizer.a]\nmatch = [\"*\"]", NULL},
    {"optimizer.name = \"adafactor\"\noptimizer.beta1 = -0.5",
     "optimizer.beta1: -0.5 is not accepted: it takes -1 (no momentum) or a number in 0..<1"},
    {"optimizer.name = \"adafactor\"\noptimizer.parameter_scale_rules = [\"*:flase\"]",
     "optimizer.parameter_scale_rules: \"*:flase\": there is no word flase, did you mean false?"},
    {"optimizer.name = \"adafactor\"\noptimizer.parameter_scale_rules = [\"*\"]",
     "optimizer.parameter_scale_rules: \"*\" has no colon"},
    {"optimizer.name = \"adafactor\"\noptimizer.factor_map = [\"*/kernel:heuristc\", \"*:none\"]",
     "optimizer.factor_map: \"*/kernel:heuristc\": there is no word heuristc, did you mean heuristic?"},
    {"optimizer.name = \"adafactor\"\noptimizer.factor_map = [\"*:batch row colum\"]",
     "did you mean column?"},
    {"optimizer.name = \"adafactor\"\noptimizer.factor_map = [\"*:batch row column none\", \"*: none\"]",
     NULL},
    {"optimizer.name = \"chain\"\noptimizer.chain = [\"adafactor(parameter_scale_rules=['*:no'])\"]",
     "optimizer.chain: adafactor: parameter_scale_rules: \"*:no\": there is no word no"},
    {"optimizer.name = \"chain\"\noptimizer.chain = [\"adafactor\", \"adafactor\"]",
     "optimizer.chain has adafactor 2 times"},
    {"optimizer.name = \"chain\"\noptimizer.chain = [\"schedule_free(scale(-1))\", \"schedule_free(scale(-1))\"]",
     "optimizer.chain has schedule_free 2 times"},
    {"optimizer.name = \"chain\"\noptimizer.chain = [\"scale(2)\", \"differentially_private_aggregate\"]",
     "optimizer.chain: differentially_private_aggregate stands after scale, but examples are clipped before"},
    {"optimizer.name = \"chain\"\noptimizer.chain = [\"masked(differentially_private_aggregate, mask=['a*'])\"]",
     "optimizer.chain: differentially_private_aggregate stands inside masked, but"},
    {"optimizer.trust_ratio_mask = [\"*kernel\"]", "optimizer.trust_ratio_mask means nothing to adamw"},
    {"optimizer.trust_ratio_mask = [\"*\"]", NULL}, /* as run directories of earlier versions have it */
    {"optimizer.name = \"chain\"", "optimizer.chain is empty"},
    {"optimizer.chain = [\"scale(2)\"]", "a chain needs name"},
    {"optimizer.name = \"chain\"\noptimizer.b1 = 0.5\noptimizer.chain = [\"scale(2)\"]",
     "a chain takes its arguments in its transforms"},
    {"optimizer.name = \"chain\"\noptimizer.chain = [\"scale_by_adm(b1=0.5)\"]",
     "optimizer.chain: there is no scale_by_adm, did you mean scale_by_adam?"},
    {"optimizer.name = \"chain\"\noptimizer.chain = [\"scale_by_adam(beta=0.5)\"]",
     "scale_by_adam has no argument beta: it takes b1, b2, eps, eps_root"},
    {"optimizer.name = \"chain\"\noptimizer.chain = [\"scale_by_adam(b3=1)\"]",
     "scale_by_adam has no argument b3, did you mean b1? It takes b1, b2, eps, eps_root"},
    {"optimizer.name = \"chain\"\noptimizer.chain = [\"scale(1.0, step_size=2.0)\"]",
     "scale: step_size is given twice"},
    {"optimizer.name = \"chain\"\noptimizer.chain = [\"scale_by_adam(b1=1.5)\"]", "b1: 1.5 is not accepted"},
    {"optimizer.name = \"chain\"\noptimizer.chain = [\"scale_by_adam(b1=nan)\"]", "b1: nan is not accepted"},
    {"optimizer.name = \"chain\"\noptimizer.chain = [\"scale_by_schedule(schedule='constnt(1)')\"]",
     "optimizer.chain: there is no constnt, did you mean constant?"},
    {"optimizer.name = \"chain\"\noptimizer.chain = [\"masked(trace(0.9), mask=['*kernel'])\", \"scale(-1)\"]",
     NULL},
    {"optimizer.name = \"chain\"\noptimizer.chain = [\"masked(mask=['*kernel'])\"]",
     "masked needs what it applies to"},
    {"optimizer.lr_factors = \"constant * quadratic\"", "optimizer.lr_factors: there is no quadratic"},
    {"[optimizer.a]\nb1 = 0.5", "optimizer.a.match is empty"},
    {"decode.beams = 2\ndecode.temperature = 1", "draws nothing"},
    {"decode.topk = 385", "decode.topk = 385 is more than model.vocab_size = 384"},
    {"data.length_buckets = [2, 3, 4, 5, 6, 7, 8, 9, 64]", "gives 81 pairs of lengths, at most 64"},
    {"train.lr_factors = \"constant * liner\"", "train.lr_factors: there is no liner, did you mean linear?"},
    {"train.lr_factors = \"constant * rsqrt\"",
     "train.lr_factors: there is no rsqrt, did you mean rsqrt_decay?"},
    {"train.lr_factors = \"0.1 * linear\"", "train.lr_factors: there is no 0, and nothing of a name like it"},
    {"optimizer.name = \"chain\"\noptimizer.chain = [\"adamw\"]",
     "there is no adamw, did you mean scale_by_adam?"},
    {"train.lr_factors = \"constant * linear\"", NULL},
    {"train.lr_step_offset = 100", "train.lr_step_offset is of a learning rate of factors"},
    {"train.min_learning_rate = 1e-5", "train.min_learning_rate is of a learning rate of factors"},
    {"train.min_learning_rate = 1e-5\ntrain.lr_step_offset = 1\ntrain.lr_factors = \"constant\"", NULL},
    {"train.min_learning_rate = 1e-5\ntrain.lr_step_offset = 1\noptimizer.lr_factors = \"constant\"", NULL},
    {"train.lr_factors = \"constant\"\ntrain.schedule = \"cosine\"",
     "train.schedule counts for nothing beside train.lr_factors"},
    {"train.lr_factors = \"constant\"\ntrain.final_learning_rate = 0.1",
     "set train.final_learning_rate to its default"},
    {"train.lr_factors = \"constant\"\ntrain.schedule = \"linear\"\ntrain.final_learning_rate = 0", NULL},
    {"train.lr_factors = \"warmup_stable_decay(shape=sqrt)\"",
     "shape: a string in quotes was expected, as in 'text'"},
    {"train.lr_factors = \"warmup_stable_decay(shape='sqr')\"",
     "shape: 'sqr' is not accepted, did you mean sqrt?"},
    {"optimizer.name = \"chain\"\noptimizer.chain = [\"masked(trace(0.9), mask=[*kernel])\"]",
     "it takes a list of strings like ['a', 'b*']"},
    {"loss.loss_normalizing_factor = \"NUM_REAL\"",
     "loss.loss_normalizing_factor: NUM_REAL is none of none, a number"},
    {"loss.loss_normalizing_factor = \"nan\"", "loss.loss_normalizing_factor: nan is none of"},
    {"loss.loss_normalizing_factor = \"0\"", "loss.loss_normalizing_factor: 0 is none of"},
    {"loss.loss_normalizing_factor = \"1e40\"", "loss.loss_normalizing_factor: 1e40 is none of"},
    {"loss.loss_normalizing_factor = \"1e-46\"", "loss.loss_normalizing_factor: 1e-46 is none of"},
    {"loss.loss_normalizing_factor = \"128.5\"", NULL},
    {"loss.loss_normalizing_factor = \"none\"", NULL},
    {"run.name = \"a\\nb\"", "no control characters"},
    {"run.name = \"a\\u007f\"", "no control characters"},
    {"run.name = \"ä b\"", NULL},
    {"reproducible.blocks = 6", "power of two"},
    {"[action.stop]\npatience = 2", "action.stop.patience needs a file in task.NAME.valid"},
    {"[action.stop]\nmetric = \"wer\"", NULL},
    {"[action.stop]\npatience = 2\n[task.a]\nvalid = \"a.tsv\"", NULL},
    {"[task.a]\ntrain = \"a.tsv\"\n[task.b]\nvalid = \"b.tsv\"\n[task.c]\n", NULL},
    {"[task.a]\ntrain = \"a.tsv\"\n[task.b]\ntrain = \"b.tsv\"\n",
     "[task.a] and [task.b]: training on several tasks needs a [mixture.NAME] of them"},
    {"[task.a]\ntrain = \"a\"\n[task.b]\ntrain = \"b\"\n[mixture.m]\ntasks = [\"a\", \"b\"]\n", NULL},
    {"[task.a]\ntrain = \"a\"\n[task.b]\ntrain = \"b\"\n[mixture.m]\ntasks = [\"a\"]\n[mixture.n]\ntasks = "
     "[\"b\"]\n",
     "name one as data.mixture"},
    {"[task.a]\ntrain = \"a\"\n[task.b]\ntrain = \"b\"\n[mixture.m]\ntasks = [\"a\", \"b\"]\n[data]\n"
     "mixture = \"x\"\n",
     "data.mixture = \"x\": there is no [mixture.x]"},
    {"[task.a]\ntrain = \"a\"\n[mixture.m]\ntasks = [\"a\", \"c\"]\n", "there is no [task.c]"},
    {"[task.a]\n[mixture.m]\ntasks = [\"a\"]\n", "task.a.train is not set"},
    {"[task.a]\ntrain = \"a\"\n[mixture.m]\ntasks = [\"a\", \"a\"]\n", "a is there twice"},
    {"[task.a]\ntrain = \"a\"\n[mixture.m]\n", "mixture.m.tasks is empty"},
    {"[task.a]\ntrain = \"a\"\n[mixture.m]\ntasks = [\"a\"]\nrates = [1, 2]\n", "2 rates for 1 tasks"},
    {"[task.a]\ntrain = \"a\"\n[mixture.m]\ntasks = [\"a\"]\n[data]\nmixture = \"x\"\n",
     "there is no [mixture.x]"},
    {"[data]\npack = true\nlength_buckets = [16]\n", "packed rows have one length"},
    {"[task.a]\ntrain = \"a\"\nformat = \"text\"\n", "have no pairs"},
    {"[task.a]\ntrain = \"a\"\nobjective = \"span_corruption\"\nmetrics = []\n", "needs sentinels"},
    {"[task.a]\ntrain = \"a\"\nobjective = \"prefix_lm\"\nvalid = \"v\"\n", "set task.a.metrics = []"},
    {"[task.a]\ntrain = \"a\"\nobjective = \"prefix_lm\"\ntargets = \"{x}\"\nmetrics = []\n",
     "task.a.targets: this objective"},
};

Test(run_config_check, cross_checks)
{
    for (size_t i = 0; i < SYI_COUNT(cross_checks); i++) {
        struct syi_config config = defaults();
        struct sy_error err = {0};
        cr_assert_eq(load(&config, cross_checks[i].text, &err), SY_OK, "%s", err.text);
        int status = syi_config_validate(&config, &err);
        cr_expect_eq(status, cross_checks[i].wanted ? SY_EINVAL : SY_OK, "%s: %s", cross_checks[i].text,
                     err.text);
        if (cross_checks[i].wanted)
            cr_expect(strstr(err.text, cross_checks[i].wanted), "%s: wanted: %s", err.text,
                      cross_checks[i].wanted);
    }
}

/* What no pattern matches is frozen beside optimizers that move something, unless the run file says otherwise. */
Test(run_config_check, what_no_optimizer_claims)
{
    static const struct {
        const char *text;
        int name;
    } cases[] = {{"", SYI_OPTIMIZER_ADAMW},
                 {"[optimizer.a]\nmatch = [\"*\"]", SYI_OPTIMIZER_NONE},
                 {"[optimizer.a]\nmatch = [\"*\"]\n[optimizer]\nname = \"adamw\"", SYI_OPTIMIZER_ADAMW},
                 {"[optimizer.a]\nmatch = [\"*\"]\nname = \"none\"", SYI_OPTIMIZER_ADAMW}};
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct syi_config config = defaults();
        struct syi_config again = config;
        struct sy_error err = {0};
        struct syi_text text = {0};
        cr_assert_eq(load(&config, cases[i].text, &err), SY_OK, "%s", err.text);
        cr_assert_eq(syi_config_validate(&config, &err), SY_OK, "%s", err.text);
        cr_expect_eq(config.optimizer.part[0].name, cases[i].name, "%s", cases[i].text);
        syi_config_print(&config, false, &text);
        cr_assert_eq(load(&again, text.data, &err), SY_OK, "%s", err.text);
        cr_assert_eq(syi_config_validate(&again, &err), SY_OK, "%s", err.text);
        cr_expect_eq(again.optimizer.part[0].name, cases[i].name, "%s, stored", cases[i].text);
        syi_text_free(&text);
    }
}

/* Rows of an evaluation follow the training's microbatch, and divide as it does among the parts of the mesh.
 */
Test(run_config_check, rows_of_evaluation)
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

/* By the sequences that the engine decodes together: those of beams and of the outputs that are asked for. */
Test(run_config_check, how_evaluations_decode)
{
    static const struct {
        int64_t beams, decodes;
        double temperature;
        const char *text;
    } cases[] = {
        {1, 1, 0, "greedy, 24 tokens"},
        {4, 1, 0, "4 beams, alpha 0.6, 24 tokens"},
        {4, 2, 0, "4 beams, alpha 0.6, 24 tokens"},
        {1, 3, 0, "3 beams, alpha 0.6, 24 tokens"},
        {2, 3, 0, "3 beams, alpha 0.6, 24 tokens"},
        {1, 1, 0.7, "temperature 0.7, seed 5, 24 tokens"},
        {1, 8, 0.7, "temperature 0.7, best of 8, seed 5, 24 tokens"},
    };
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct syi_config config = defaults();
        char text[SYI_DECODE_TEXT];
        config.data.max_target_length = 24;
        config.train.seed = 5;
        config.decode.beams = cases[i].beams;
        config.decode.num_decodes = cases[i].decodes;
        config.decode.temperature = cases[i].temperature;
        syi_config_decode_text(&config, text);
        cr_expect_str_eq(text, cases[i].text);
    }
}
