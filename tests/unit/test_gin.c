/* SPDX-License-Identifier: Apache-2.0 */
/* Gin files: statements and values as gin has them, errors with their lines, and what becomes of bindings in a run file. */
#include "config.h"

#include <criterion/criterion.h>
#include <string.h>

#include "base/run_config.h"
#include "import/gin.h"

static struct syi_gin parse(const char *text)
{
    struct syi_gin gin = {0};
    struct sy_error err = {0};
    cr_assert_eq(syi_gin_parse(&gin, "test", text, strlen(text), 0, &err), SY_OK, "%s", err.text);
    return gin;
}

static void expect_error(const char *text, const char *message)
{
    struct syi_gin gin = {0};
    struct sy_error err = {0};
    cr_expect_eq(syi_gin_parse(&gin, "test", text, strlen(text), 0, &err), SY_EFORMAT, "accepted: %s", text);
    cr_expect_str_eq(err.text, message);
    syi_gin_free(&gin);
}

/* The only binding of the text, as "name = value". */
static void expect_binding(const char *text, const char *expected)
{
    struct syi_gin gin = parse(text);
    struct syi_text out = {0};
    cr_assert_eq(gin.n_bindings, 1, "%s", text);
    syi_text_printf(&out, "%s = ", syi_gin_string(&gin, gin.bindings[0].name));
    syi_gin_print(&gin, gin.bindings[0].value, &out);
    cr_expect_str_eq(out.data, expected);
    syi_text_free(&out);
    syi_gin_free(&gin);
}

Test(gin, values)
{
    expect_binding("A = 1_000", "A = 1000");
    expect_binding("A = [0x1F, -0Xff_ff, 0o17, 0b101]", "A = (31, -65535, 15, 5)");
    expect_binding("A = -2.5e-3 # a number", "A = -2.5e-3");
    expect_binding("A = None", "A = None");
    expect_binding("A = 'it''s' \"#1\"", "A = 'its#1'");
    expect_binding("A = 'a\\tb'", "A = 'a\\x09b'");
    expect_binding("A = r'a\\tb\\'' R\"\\\\\"", "A = 'a\\tb\\'\\\\'");
    expect_binding("A = '''two\nlines'''", "A = 'two\\x0alines'");
    expect_binding("A = (1)", "A = 1");
    expect_binding("A = (1,)", "A = (1)");
    expect_binding("A = [ 1, # one\n  'x', ]", "A = (1, 'x')");
    expect_binding("A = {'inputs': 512, 'targets': %B}", "A = {'inputs': 512, 'targets': %B}");
    expect_binding("A = @s/m.f()", "A = @s/m.f");
    expect_binding("A = \\\n  3", "A = 3");
}

Test(gin, statements)
{
    expect_binding("from a import b\nimport c.d as e  # is: 'e'\n\ns/m.f.p = True\r\n", "s/m.f.p = True");
    expect_binding("m.f:\n  # a comment\n\n  p = 2\n", "m.f.p = 2");
    struct syi_gin gin = parse("m.f:\n  p = 2\n  q = 3\nA = 1\ninclude 'other.gin'\n");
    cr_assert_eq(gin.n_bindings, 3);
    cr_expect_str_eq(syi_gin_string(&gin, gin.bindings[1].name), "m.f.q");
    cr_expect_eq(gin.bindings[2].line, 4);
    cr_assert_eq(gin.n_missing, 1);
    cr_expect_str_eq(syi_gin_string(&gin, gin.missing[0].text), "other.gin");
    syi_gin_free(&gin);
}

Test(gin, errors_name_the_line)
{
    expect_error("A = 1\nB = [1,\n", "test:2: a bracket that is not closed");
    expect_error("A = 'x", "test:1: a string that does not end");
    expect_error("A = 1 2", "test:1: something after the end of the statement: one statement a line");
    expect_error("\n\nA =\n", "test:3: a value is missing");
    expect_error("A = [1 2]", "test:1: a comma or the closing bracket is missing");
    expect_error("A = 12x", "test:1: not a number");
    expect_error("A = 0x", "test:1: not a number");
    expect_error("A = 0o8", "test:1: not a number");
    expect_error("A = 0b0b1", "test:1: not a number");
    expect_error("A = 0x10000000000000000", "test:1: not a number");
    expect_error("A = @f(1)", "test:1: @function() takes no arguments");
    expect_error("A = {1}", "test:1: a dictionary wants ':' after a key");
    expect_error("  A = 1", "test:1: an indented line outside a block");
    expect_error("m.f:\n  p\n", "test:2: a block has lines of parameter = value");
    expect_error("hello", "test:1: not a statement of gin: name = value, name:, include or import");
    expect_error("A = [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "test:1: brackets that are too deep");
}

Test(gin, macros)
{
    struct syi_gin gin = parse("A = %B\nB = %C\nC = 1\nC = 2\nD = %E\nE = %D\nF = %gin.REQUIRED\n");
    uint32_t value = syi_gin_resolve(&gin, gin.bindings[0].value);
    cr_assert_neq(value, (uint32_t)SYI_GIN_NONE);
    cr_expect_str_eq(syi_gin_string(&gin, gin.nodes[value].text), "2", "the later one holds");
    cr_expect_eq(syi_gin_resolve(&gin, gin.bindings[4].value), (uint32_t)SYI_GIN_NONE, "a circle");
    cr_expect_eq(syi_gin_resolve(&gin, gin.bindings[6].value), (uint32_t)SYI_GIN_NONE);
    syi_gin_free(&gin);
}

/* The run file of a text loads; warnings are returned, to be freed. */
static struct syi_text convert(const char *text, struct syi_config *config)
{
    struct syi_gin gin = parse(text);
    struct syi_text run = {0}, warnings = {0};
    struct sy_error err = {0};
    cr_assert_eq(syi_gin_convert(&gin, "test", &run, &warnings, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_config_defaults(config, &err), SY_OK);
    cr_assert_eq(syi_config_load_text(config, "out", run.data, run.length, &err), SY_OK, "%s", err.text);
    syi_text_free(&run);
    syi_gin_free(&gin);
    return warnings;
}

static struct syi_config config;

Test(gin, experts)
{
    struct syi_text warnings = convert(
        "moe_layers.MoeLayer:\n  num_experts = %NUM_EXPERTS\n  router = @routing.TokensChooseScatterRouter()\n"
        "NUM_EXPERTS = 16\nmoe_architecture.SparseEncoder.sparse_layout = %LayerLayout.MIDDLE\n"
        "expert/dense.MlpBlock.intermediate_dim = 96\ndense.MlpBlock.intermediate_dim = 64\n"
        "dense.MlpBlock.activations = ('swish', 'linear')\n"
        "moe_models.MoeEncoderDecoderModel.aux_loss_factor = 0.02\n",
        &config);
    cr_expect_eq(config.moe.num_experts, 16);
    cr_expect_eq(config.moe.router_type, SYI_ROUTER_TOKENS_CHOOSE_SCATTER);
    cr_expect_eq(config.moe.encoder_sparse_layout, SYI_SPARSE_MIDDLE);
    cr_expect_eq(config.moe.expert_mlp_dim, 96);
    cr_expect_eq(config.model.d_ff, 64);
    cr_expect_eq(config.model.mlp_activations, SYI_MLP_SILU_LINEAR);
    cr_expect_eq(config.moe.aux_loss_factor, 0.02);
    cr_expect_eq(config.moe.router_z_loss_factor, 0, "T5X's default");
    cr_expect_null(strstr(warnings.data, "not converted"), "%s", warnings.data);
    cr_expect_not_null(
        strstr(warnings.data, "nothing says, so that switchyard's defaults hold: model.vocab_size"));
    syi_text_free(&warnings);
}

/* As in flaxformer's files: each stack has a router in a scope of its own. */
Test(gin, routers_of_both_stacks)
{
    struct syi_text warnings = convert(
        "sparse_decoder/moe_layers.MoeLayer.router = @sparse_decoder/routing.TokensChooseMaskedRouter()\n"
        "sparse_encoder/moe_layers.MoeLayer.router = @sparse_encoder/routing.ExpertsChooseMaskedRouter()\n"
        "sparse_encoder/routing.TokensChooseMaskedRouter.batch_prioritized_routing = True\n"
        "sparse_decoder/routing.TokensChooseMaskedRouter.batch_prioritized_routing = False\n"
        "routing.TokensChooseMaskedRouter.router_weights = @routing.RouterWeights()\n",
        &config);
    cr_expect_eq(config.moe.router_type, SYI_ROUTER_EXPERTS_CHOOSE_MASKED);
    cr_expect_eq(config.moe.decoder_router_type, SYI_DECODER_ROUTER_TOKENS_CHOOSE_MASKED);
    cr_expect(config.moe.encoder_batch_prioritized_routing);
    cr_expect_not(config.moe.decoder_batch_prioritized_routing);
    cr_expect(config.moe.router_use_bias, "flaxformer's default");
    cr_expect_eq(config.moe.aux_loss_factor, 0, "T5X's default");
    cr_expect_null(strstr(warnings.data, "not converted"), "%s", warnings.data);
    syi_text_free(&warnings);
    warnings = convert("decoder/moe_layers.MoeLayer.router = @routing.TokensChooseScatterRouter()\n"
                       "routing.RouterWeights.use_bias = False\n",
                       &config);
    cr_expect_eq(config.moe.router_type, SYI_ROUTER_TOKENS_CHOOSE_MASKED);
    cr_expect_eq(config.moe.decoder_router_type, SYI_DECODER_ROUTER_TOKENS_CHOOSE_SCATTER);
    cr_expect_not(config.moe.router_use_bias);
    syi_text_free(&warnings);
}

/* A choice is the constant at the end of the macros, not the name of one of them. */
Test(gin, choices_through_macros)
{
    struct syi_text warnings = convert(
        "LAYOUT = %moe_enums.LayerLayout.TOP\nmoe_architecture.SparseEncoder.sparse_layout = %LAYOUT\n"
        "A = %B\nB = %gin.REQUIRED\nm.Model.loss_normalizing_factor = %A\n"
        "t5_architecture.EncoderDecoder.dtype = %NOWHERE\n",
        &config);
    cr_expect_eq(config.moe.encoder_sparse_layout, SYI_SPARSE_TOP);
    cr_expect_str_eq(config.loss.loss_normalizing_factor, "none", "T5X's default");
    cr_expect_not_null(strstr(warnings.data, "loss_normalizing_factor = %A: the macro has no value"));
    cr_expect_not_null(strstr(warnings.data, "dtype = %NOWHERE: the macro has no value"));
    syi_text_free(&warnings);
}

static void expect_tied(const char *text, int tied)
{
    struct syi_text warnings = convert(text, &config);
    cr_expect_eq(config.model.logits_via_embedding, tied, "%s", text);
    cr_expect_null(strstr(warnings.data, "output_logits_factory"), "%s", warnings.data);
    syi_text_free(&warnings);
}

/* flaxformer has a head where there is a factory for it. */
Test(gin, heads)
{
    expect_tied("t5_architecture.Decoder.output_logits_factory = None\n", 1);
    expect_tied("moe_architecture.SparseDecoder.output_logits_factory = @output_logits/dense.DenseGeneral\n",
                0);
    expect_tied("moe_architecture.SparseDecoder.output_logits_factory = @output_logits/dense.DenseGeneral\n"
                "moe_architecture.SparseDecoder.output_logits_factory = None\n",
                1);
    expect_tied("t5_architecture.EncoderDecoder.decoder_factory = @t5_architecture.Decoder\n", 1);
    expect_tied("network.T5Config.emb_dim = 8\n", 0);
}

Test(gin, dropout_and_capacity)
{
    struct syi_text warnings = convert(
        "DROPOUT_RATE = 0.1\ndropout_factory/linen.Dropout.rate = %DROPOUT_RATE\n"
        "dense.MlpBlock.intermediate_dropout_rate = %DROPOUT_RATE\nexpert/dense.MlpBlock.intermediate_dropout_rate = 0.4\n"
        "TRAIN_EXPERT_CAPACITY_FACTOR = 1.5\nEVAL_EXPERT_CAPACITY_FACTOR = 3.\n",
        &config);
    cr_expect_eq(config.model.dropout_rate, 0.1);
    cr_expect_eq(config.moe.train_capacity_factor, 1.5);
    cr_expect_eq(config.moe.eval_capacity_factor, 3);
    cr_expect_not_null(
        strstr(warnings.data, "test:4: expert/dense.MlpBlock.intermediate_dropout_rate = 0.4: experts drop"));
    cr_expect_null(strstr(warnings.data, "test:3"), "%s", warnings.data);
    syi_text_free(&warnings);
    warnings = convert("dropout_factory/linen.Dropout.rate = 0.1\n"
                       "dense_attention.MultiHeadDotProductAttention.dropout_rate = 0.2\n",
                       &config);
    cr_expect_eq(config.model.dropout_rate, 0.2);
    cr_expect_not_null(strstr(
        warnings.data, "test:1: dropout_factory/linen.Dropout.rate = 0.1: model.dropout_rate is one for all "
                       "and has the value of dense_attention."));
    syi_text_free(&warnings);
}

/* ST-MoE's: a key for both stacks. */
Test(gin, extra_mlp)
{
    static const char encoder[] = "moe_architecture.SparseEncoder.num_sparse_layers = 1\n"
                                  "moe_architecture.SparseEncoderLayer.extra_mlp = @dense.MlpBlock()\n";
    char text[512];
    struct syi_text warnings = convert(encoder, &config);
    cr_expect(config.moe.extra_mlp);
    syi_text_free(&warnings);
    snprintf(text, sizeof text, "%smoe_architecture.SparseDecoder.num_sparse_layers = 1\n", encoder);
    warnings = convert(text, &config);
    cr_expect_not(config.moe.extra_mlp);
    cr_expect_not_null(
        strstr(warnings.data, "extra_mlp = @dense.MlpBlock: moe.extra_mlp is for the experts of both"));
    syi_text_free(&warnings);
    strcat(text, "moe_architecture.SparseDecoderLayer.extra_mlp = @dense.MlpBlock()\n");
    warnings = convert(text, &config);
    cr_expect(config.moe.extra_mlp);
    cr_expect_null(strstr(warnings.data, "not converted"), "%s", warnings.data);
    syi_text_free(&warnings);
}

Test(gin, training)
{
    struct syi_text warnings = convert(
        "TRAIN_STEPS = 5000\nTASK_FEATURE_LENGTHS = {'inputs': 64, 'targets': 16, 'words': 3}\n"
        "OPTIMIZER = @optimizers.adamw()\noptimizers.adamw.b1 = 0.8\nadafactor.Adafactor.decay_rate = 0.7\n"
        "utils.create_learning_rate_scheduler:\n  factors = 'constant * cosine_decay'\n"
        "  steps_per_cycle = 300\n  warmup_steps = 9\n"
        "utils.SaveCheckpointConfig.keep = None\ntrain.random_seed = -4\n",
        &config);
    cr_expect_eq(config.run.compat, SYI_COMPAT_T5X);
    cr_expect_eq(config.train.steps, 5000);
    cr_expect_eq(config.data.max_input_length, 64);
    cr_expect_eq(config.data.max_target_length, 16);
    cr_expect_eq(config.optimizer.part[0].name, SYI_OPTIMIZER_ADAMW);
    cr_expect_eq(config.optimizer.part[0].b1, 0.8);
    cr_expect_str_eq(config.train.lr_factors, "constant * cosine_decay(steps_per_cycle=300)");
    cr_expect_eq(config.train.learning_rate, 0.5, "T5X's default");
    cr_expect_eq(config.train.warmup_steps, 9);
    cr_expect_eq(config.train.keep_checkpoints, 0);
    cr_expect_not_null(strstr(warnings.data, "not converted: test:2: TASK_FEATURE_LENGTHS"));
    cr_expect_not_null(
        strstr(warnings.data, "words is no feature with a length: those are inputs and targets"));
    cr_expect_not_null(strstr(
        warnings.data, "test:5: adafactor.Adafactor.decay_rate = 0.7: the optimizer of the run is another"));
    cr_expect_not_null(strstr(warnings.data, "test:11: train.random_seed = -4: "));
    syi_text_free(&warnings);
}

/* Another optimizer than Adafactor, as T5X's examples choose it: in a chain, with a rate and defaults of its own. */
Test(gin, optimizers_of_optax)
{
    static const char schedule[] =
        "OPTIMIZER = @optimizers.chain()\noptimizers.chain.transformations = [@optax.clip_by_global_norm(), @optax.adamw()]\n"
        "optax.clip_by_global_norm.max_norm = 2.0\noptax.adamw.learning_rate = @optax.warmup_cosine_decay_schedule()\n"
        "optax.warmup_cosine_decay_schedule:\n  init_value = 0.0\n  peak_value = 1e-4\n  warmup_steps = 1000\n"
        "  decay_steps = %TRAIN_STEPS\n  end_value = 1e-5\nTRAIN_STEPS = 5000\n"
        "utils.create_learning_rate_scheduler:\n  factors = 'constant * cosine_decay'\n  steps_per_cycle = 300\n";
    struct syi_text warnings = convert(schedule, &config);
    cr_expect_eq(config.optimizer.part[0].name, SYI_OPTIMIZER_ADAMW);
    cr_expect_eq(config.optimizer.part[0].b2, 0.999, "optax's default");
    cr_expect_eq(config.optimizer.part[0].weight_decay, 1e-4, "optax's default");
    cr_expect_eq(config.train.clip_norm, 2);
    cr_expect_eq(config.train.learning_rate, 1e-4);
    cr_expect_eq(config.train.warmup_steps, 1000);
    cr_expect_str_eq(config.train.lr_factors,
                     "constant * linear_warmup * cosine(decay_steps=4000, alpha=0.1, "
                     "transition_begin=1000)");
    cr_expect_not_null(strstr(
        warnings.data, ".factors = 'constant * cosine_decay': the optimizer has a learning_rate of its own"));
    cr_expect_not_null(
        strstr(warnings.data, ".steps_per_cycle = 300: the optimizer has a learning_rate of its own"));
    const char *last = strstr(strstr(warnings.data, "not converted") + 1, "not converted");
    cr_expect(last && !strstr(last + 1, "not converted"), "%s", warnings.data);
    syi_text_free(&warnings);

    warnings = convert(
        "OPTIMIZER = @optimizers.chain()\n"
        "optimizers.chain.transformations = [@optax.clip(), @optax.lion()]\noptax.clip.max_delta = 1.0\n"
        "optax.lion:\n  learning_rate = 3e-4\n  weight_decay = 0.5\n",
        &config);
    cr_expect_eq(config.optimizer.part[0].name, SYI_OPTIMIZER_LION);
    cr_expect_eq(config.optimizer.part[0].weight_decay, 0.5);
    cr_expect_eq(config.train.learning_rate, 3e-4);
    cr_expect_str_eq(config.train.lr_factors, "constant");
    cr_expect_not_null(strstr(warnings.data, "(@optax.clip, @optax.lion): clip is left out of it"));
    syi_text_free(&warnings);

    warnings = convert(
        "OPTIMIZER = @optimizers.lamb()\noptimizers.lamb.learning_rate = @optax.sgdr_schedule()\n", &config);
    cr_expect_str_eq(config.optimizer.part[0].trust_ratio_mask.text, "*", "optax's default");
    cr_expect_not_null(
        strstr(warnings.data, "test:2: optimizers.lamb.learning_rate = @optax.sgdr_schedule: write it as"));
    syi_text_free(&warnings);
}

static void expect_decoding(int beams, int num_decodes, double temperature, int topk)
{
    cr_expect_eq(config.decode.beams, beams);
    cr_expect_eq(config.decode.num_decodes, num_decodes);
    cr_expect_eq(config.decode.temperature, temperature);
    cr_expect_eq(config.decode.topk, topk);
}

/* Converts the text; `warning` is the only line of what was not converted, NULL: there is none. */
static void convert_decoding(const char *text, const char *warning)
{
    struct syi_text warnings = convert(text, &config);
    const char *note = strstr(warnings.data, "not converted: ");
    if (warning)
        cr_expect(note && strstr(note, warning) && !strstr(note + 1, "not converted: "), "%s", warnings.data);
    else
        cr_expect_null(note, "%s", warnings.data);
    syi_text_free(&warnings);
}

/* T5X decodes by decode_fn, beam_search where there is none, and gives the best of num_decodes unless asked for all. */
Test(gin, beam_search)
{
    convert_decoding("m.Model.predict_batch_with_aux.num_decodes = 4\ndecoding.beam_search.alpha = 0.8\n",
                     NULL);
    expect_decoding(4, 1, 0, 0);
    cr_expect_eq(config.decode.alpha, 0.8);
    convert_decoding("m.Model.predict_batch_with_aux.num_decodes = 4\n"
                     "m.Model.predict_batch_with_aux.return_all_decodes = True\n",
                     NULL);
    expect_decoding(4, 4, 0, 0);
    convert_decoding("models.EncoderDecoderModel.decode_fn = @decoding.beam_search\n"
                     "decoding.temperature_sample.temperature = 0.7\n",
                     "test:2: decoding.temperature_sample.temperature = 0.7: decode_fn is another");
    expect_decoding(1, 1, 0, 0);
    convert_decoding("decoding.temperature_sample.topk = 20\n", "topk = 20: decode_fn is another");
    expect_decoding(1, 1, 0, 0);
}

Test(gin, temperature_sample)
{
    static const char sample[] = "models.EncoderDecoderModel.decode_fn = @decoding.temperature_sample\n";
    char text[512];
    snprintf(text, sizeof text, "decoding.temperature_sample.temperature = 0.5\n%s", sample);
    convert_decoding(text, NULL);
    expect_decoding(1, 1, 0.5, 1);
    snprintf(text, sizeof text,
             "%sdecoding.temperature_sample.topk = 0\nm.M.predict_batch_with_aux.num_decodes = 4\n", sample);
    convert_decoding(text, "test:3: m.M.predict_batch_with_aux.num_decodes = 4: the best alone of so many");
    expect_decoding(1, 1, 1, 0);
    snprintf(text, sizeof text,
             "%sm.M.predict_batch_with_aux:\n  num_decodes = 4\n  return_all_decodes = True\n", sample);
    convert_decoding(text, NULL);
    expect_decoding(1, 4, 1, 1);
    snprintf(text, sizeof text, "%sdecoding.beam_search.alpha = 0.8\n", sample);
    convert_decoding(text, "alpha = 0.8: decode_fn is another");
    cr_expect_eq(config.decode.alpha, 0.6);
    convert_decoding("m.EncoderDecoderModel.decode_fn = @mine.search\n",
                     "test:1: m.EncoderDecoderModel.decode_fn = @mine.search: beam_search and ");
    expect_decoding(1, 1, 0, 0);
}

/* A key that is unknown is named with the nearest one; one without a counterpart with what to do, unless it asks for nothing. */
Test(gin, what_is_not_converted)
{
    struct syi_text warnings = convert(
        "network.T5Config.num_head = 3\nutils.RestoreCheckpointConfig.path = 'there'\n"
        "partitioning.PjitPartitioner.model_parallel_submesh = None\nA = 'x\\ny'\n"
        "seqio.Evaluator.num_examples = 9\nseqio.JSONLogger.write_n_results = 7\n"
        "OPTIMIZER = @optimizers.adamw()\noptimizers.adamw.mask = None\noptimizers.adamw.msk = False\n"
        "TASK_FEATURE_LENGTHS = {'inputs': 512, 'targets': None}\n",
        &config);
    cr_expect_not_null(strstr(
        warnings.data, "test:1: network.T5Config.num_head = 3: no key for it is known; the nearest that "
                       "has one: T5Config.num_heads\n"));
    cr_expect_not_null(strstr(
        warnings.data, "test:2: utils.RestoreCheckpointConfig.path = 'there': first `switchyard import`"));
    cr_expect_null(strstr(warnings.data, "submesh"));
    cr_expect_not_null(strstr(warnings.data, "test:4: A = 'x\\x0ay': no key"), "one line each");
    cr_expect_not_null(
        strstr(warnings.data, "test:5: seqio.Evaluator.num_examples = 9: task.NAME.eval_examples"));
    cr_expect_eq(config.metrics.examples, 7);
    cr_expect_not_null(strstr(warnings.data, "test:8: optimizers.adamw.mask = None: no key"));
    cr_expect_not_null(strstr(warnings.data, "test:9: optimizers.adamw.msk = False: no key"));
    cr_expect_not_null(strstr(warnings.data, "'targets': None}: the length of targets is no number\n"));
    cr_expect_eq(config.data.max_input_length, 512);
    syi_text_free(&warnings);
}

/* Classes that say which part goes where are no place for a misspelled number, nor for data of another kind. */
Test(gin, what_is_no_wiring)
{
    convert_decoding(
        "train.model = %MODEL\ntrain.trainer_cls = @trainer.Trainer\ntrain.infer_eval_dataset_cfg = None\n"
        "train.total_step = 77\ntrain_eval/utils.DatasetConfig:\n  split = 'validation'\n  shuffle = False\n",
        "test:4: train.total_step = 77: no key for it is known; the nearest that has one: train.total_steps");
    convert_decoding("train/utils.DatasetConfig:\n  shuffle = True\n  use_cached = True\n", NULL);
    convert_decoding("train/utils.DatasetConfig.shuffle = False\n",
                     "examples of training are always shuffled");
    convert_decoding("train/utils.DatasetConfig.split = 'train[:10%]'\n", "task.NAME.train has the files");
    convert_decoding("trainer.MoeTrainer.num_expert_partitions = 4\n",
                     "T5X multiplies gradients of experts by it");
    convert_decoding("layer_norm.T5LayerNorm.epsilon = 1e-5\n", NULL);
    cr_expect_eq(config.model.layer_norm_epsilon, 1e-5);
}

/* As gin has it: what a scope binds holds there, wherever a binding without a scope stands. */
Test(gin, the_scope_of_training_holds)
{
    struct syi_text warnings =
        convert("train/utils.DatasetConfig.batch_size = 128\ntrain/utils.DatasetConfig.pack = True\n"
                "train/utils.DatasetConfig.task_feature_lengths = {'inputs': 64, 'targets': 16}\n"
                "utils.DatasetConfig.batch_size = 32\nutils.DatasetConfig.pack = False\n"
                "utils.DatasetConfig.task_feature_lengths = {'inputs': 512, 'targets': 256}\n",
                &config);
    cr_expect_eq(config.data.batch_size, 128);
    cr_expect(config.data.pack);
    cr_expect_eq(config.data.max_input_length, 64);
    cr_expect_eq(config.data.max_target_length, 16);
    cr_expect_not_null(
        strstr(warnings.data, "test:4: utils.DatasetConfig.batch_size = 32: decode.batch_size"));
    cr_expect_null(strstr(warnings.data, "test:1"), "%s", warnings.data);
    syi_text_free(&warnings);
}

/* T5X's decay_factor is that of two factors. */
Test(gin, decay_factor)
{
    static const char *const products[] = {"linear_decay(decay_factor=1e-4)",
                                           "constant * decay_every(decay_factor=1e-4)"};
    for (size_t i = 0; i < SYI_COUNT(products); i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "utils.create_learning_rate_scheduler:\n  factors = '%.*s'\n  decay_factor = 1e-4\n",
                 (int)strcspn(products[i], "("), products[i]);
        struct syi_text warnings = convert(text, &config);
        cr_expect_str_eq(config.train.lr_factors, products[i]);
        syi_text_free(&warnings);
    }
}

/* All rows of the table name keys that there are, but for the empty ones. */
Test(gin, the_table_names_keys)
{
    enum { VALUE, CHOICE, ACTIVATIONS, LENGTHS, FACTOR, TASK, DECODER, LATER, WIRING, PARTS, OFF, NONE };
    static const struct {
        int how;
        const char *name, *key, *extra;
    } rows[] = {
#define GIN_KEY(scope, name, how, key, extra) {how, name, key, extra},
#include "import/gin_keys.def"
    };
    for (size_t i = 0; i < SYI_COUNT(rows); i++) {
        struct syi_key key;
        char reason[SYI_REASON];
        int has_key = rows[i].how == VALUE || rows[i].how == CHOICE || rows[i].how == ACTIVATIONS ||
                      rows[i].how == LATER;
        if (has_key)
            cr_expect_eq(syi_key_parse(rows[i].key, &key, reason), SY_OK, "%s: %s", rows[i].name, reason);
        if (rows[i].how == NONE || rows[i].how == OFF)
            cr_expect_not_null(rows[i].extra, "%s has no reason", rows[i].name);
    }
}
