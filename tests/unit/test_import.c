/* SPDX-License-Identifier: Apache-2.0 */
/* Reading what torch.save wrote, names of Hugging Face's parameters, special tokens in texts. */
#include "config.h"

#include <criterion/criterion.h>
#include <string.h>

#include "base/f16.h"
#include "data/vocabulary.h"
#include "import/hf.h"
#include "import/pickle.h"

/* ---- pickles ---- */

#define PROTOCOL   "\x80\x02"
#define TEXT(n, t) "X" n "\0\0\0" t
#define STORAGE(type, count)                                                                                 \
    "(" TEXT("\7", "storage") "ctorch\n" type "\n" TEXT("\1", "0") TEXT("\3", "cpu") "K" count "tQ"
#define TENSOR(type, count, offset, dims, strides)                                                           \
    "ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE(type, count) "K" offset dims strides "\x89"               \
                                                                "ccollections\nOrderedDict\n)RtR"
#define WEIGHTS(tensor)     PROTOCOL "}" TEXT("\1", "w") tensor "s."
#define READ(p, bytes, err) syi_pickle_read(p, "test", bytes, sizeof(bytes) - 1, err)

static int tensor_of(const struct syi_pickle *p, struct syi_pickle_tensor *t, struct sy_error *err)
{
    int64_t value = syi_pickle_member(p, p->root, "w");
    cr_assert(value >= 0);
    return syi_pickle_tensor(p, (uint32_t)value, t, err);
}

Test(import, a_tensor_is_a_part_of_its_storage)
{
    static const char bytes[] = WEIGHTS(TENSOR("HalfStorage", "\x07", "\1", "K\2K\3\x86", "K\3K\1\x86"));
    struct syi_pickle p;
    struct syi_pickle_tensor t;
    struct sy_error err = {0};
    cr_assert(READ(&p, bytes, &err) == SY_OK, "%s", err.text);
    cr_assert(tensor_of(&p, &t, &err) == SY_OK, "%s", err.text);
    cr_assert(t.dtype == SYI_SAFETENSORS_F16 && t.count == 7 && t.offset == 1 && t.rank == 2);
    cr_assert(t.dims[0] == 2 && t.dims[1] == 3 && t.stride[0] == 3 && t.stride[1] == 1);
    cr_assert(t.n_key == 1 && t.key[0] == '0');
    syi_pickle_free(&p);
}

Test(import, a_tensor_over_the_end_of_its_storage_is_refused)
{
    static const char one_more[] = WEIGHTS(TENSOR("FloatStorage", "\x06", "\1", "K\2K\3\x86", "K\3K\1\x86"));
    struct syi_pickle p;
    struct syi_pickle_tensor t;
    struct sy_error err = {0};
    cr_assert(READ(&p, one_more, &err) == SY_OK, "%s", err.text);
    cr_assert(tensor_of(&p, &t, &err) == SY_EFORMAT);
    cr_assert(strstr(err.text, "over the end"), "%s", err.text);
    syi_pickle_free(&p);
}

Test(import, nothing_of_a_pickle_is_run)
{
    static const char system[] = PROTOCOL "cposix\nsystem\n" TEXT("\2", "ls") "\x85R.";
    static const char build[] = PROTOCOL "ctorch\nFloatStorage\n}b.";
    static const char opcode[] = PROTOCOL "\x93.";
    struct syi_pickle p;
    struct sy_error err = {0};
    cr_assert(READ(&p, system, &err) == SY_EUNSUPPORTED);
    cr_assert(strstr(err.text, "posix.system"), "%s", err.text);
    syi_pickle_free(&p);
    memset(&err, 0, sizeof err);
    cr_assert(READ(&p, build, &err) == SY_EFORMAT);
    syi_pickle_free(&p);
    memset(&err, 0, sizeof err);
    cr_assert(READ(&p, opcode, &err) == SY_EUNSUPPORTED);
    cr_assert(strstr(err.text, "0x93"), "%s", err.text);
    syi_pickle_free(&p);
}

/* Each of these takes from the stack what is not there, or is not that. */
Test(import, malformed_pickles_are_errors)
{
    static const struct {
        const char *bytes;
        size_t n;
    } rows[] = {
#define ROW(text) {text, sizeof text - 1}
        ROW(""),           ROW("\x80\x02"), ROW("\x80\x02."), ROW("\x80\x02(t"), ROW("\x80\x02t."),
        ROW("\x80\x02(."), ROW("NN."),      ROW("Ns."),       ROW("(Nu."),       ROW("}(Nu."),
        ROW("]K\1s."),     ROW("\x85."),    ROW("h\0."),      ROW("j\0\0\0\1."), ROW("Nr\xff\xff\xff\x7f."),
        ROW("Q."),         ROW("NQ."),      ROW(")Q."),       ROW("NNR."),       ROW("X\xff\0\0\0a."),
        ROW("cno line"),   ROW("\x8a\x09"), ROW("N(\x85u."),  ROW("\x80\x04N.")};
    for (size_t i = 0; i < SYI_COUNT(rows); i++) {
        struct syi_pickle p;
        struct sy_error err = {0};
        int status = syi_pickle_read(&p, "test", rows[i].bytes, rows[i].n, &err);
        cr_assert(status == SY_EFORMAT || status == SY_EUNSUPPORTED, "row %zu", i);
        cr_assert(err.text[0]);
        syi_pickle_free(&p);
    }
}

/* ---- numbers ---- */

Test(import, float16_widens_exactly)
{
    static const struct {
        uint16_t half;
        float value;
    } rows[] = {{0x0000, 0},        {0x3c00, 1},          {0xc000, -2},
                {0x7bff, 65504},    {0x0001, 0x1p-24f},   {0x83ff, -0x1.ff8p-15f},
                {0x0400, 0x1p-14f}, {0x3555, 0x1.554p-2f}};
    for (size_t i = 0; i < SYI_COUNT(rows); i++)
        cr_assert(syi_f16_to_float(rows[i].half) == rows[i].value, "%04x", rows[i].half);
    cr_assert(isinf(syi_f16_to_float(0x7c00)) && isnan(syi_f16_to_float(0x7e00)) &&
              signbit(syi_f16_to_float(0x8000)));
}

/* ---- names ---- */

static void expect_name(const char *ours, enum syi_hf_family family, const char *theirs, int transposed)
{
    struct syi_hf_name name;
    char text[SYI_HF_NAME];
    cr_assert(syi_hf_name(ours, family, &name), "%s", ours);
    syi_hf_expert_name(&name, 10, text);
    cr_assert_str_eq(text, theirs);
    cr_assert(name.transposed == transposed, "%s", ours);
}

Test(import, names_of_parameters)
{
    struct syi_hf_name name;
    expect_name("token_embedder/embedding", SYI_HF_T5, "shared.weight", 0);
    expect_name("decoder/logits_dense/kernel", SYI_HF_T5, "lm_head.weight", 1);
    expect_name("decoder/layers_11/encoder_decoder_attention/out/kernel", SYI_HF_MT5,
                "decoder.block.11.layer.1.EncDecAttention.o.weight", 1);
    expect_name("encoder/layers_0/mlp/wi_1/kernel", SYI_HF_T5,
                "encoder.block.0.layer.1.DenseReluDense.wi_1.weight", 1);
    expect_name("decoder/layers_2/mlp/wo/kernel", SYI_HF_SWITCH, "decoder.block.2.layer.2.mlp.wo.weight", 1);
    expect_name("decoder/layers_2/mlp/expert/wi/kernel", SYI_HF_SWITCH,
                "decoder.block.2.layer.2.mlp.experts.expert_10.wi.weight", 1);
    expect_name("encoder/layers_3/relpos_bias/rel_embedding", SYI_HF_UMT5,
                "encoder.block.3.layer.0.SelfAttention.relative_attention_bias.weight", 1);
    expect_name("encoder/encoder_norm/scale", SYI_HF_T5, "encoder.final_layer_norm.weight", 0);
    cr_assert(!syi_hf_name("encoder/layers_1/mlp/expert/wi/kernel", SYI_HF_T5, &name));
    cr_assert(!syi_hf_name("encoder/layers_1/mlp/shared/wi/kernel", SYI_HF_SWITCH, &name));
    cr_assert(!syi_hf_name("encoder/layers_1/self_attention/query/kernel", SYI_HF_T5, &name));
    cr_assert(!syi_hf_name("decoder/layers_1/", SYI_HF_T5, &name));
}

/* ---- the step of a T5X checkpoint ---- */

static struct syi_import import;

/* Opens the seed `dense` of fuzz target t5x with other bytes for its key "step" and what that holds, an int32. */
static void open_with_step(const char *step, size_t bytes)
{
    static const char seven[] = "\xa4step\xc7\x0e\1\x93\x90\xa5int32\xc4\4\7\0\0";
    char folder[] = "/tmp/sy-unit-XXXXXX", path[300], *text;
    struct sy_error err = {0};
    size_t n, at = 0, skipped = sizeof seven; /* its NUL is the last byte of the number */
    snprintf(path, sizeof path, "%s/tests/fuzz/seeds/t5x/dense", getenv("abs_top_srcdir"));
    cr_assert(syi_file_read(path, &text, &n, &err) == SY_OK, "%s", err.text);
    while (at + skipped < n && memcmp(text + at, seven, skipped)) at++;
    cr_assert(at + skipped < n && mkdtemp(folder));
    snprintf(path, sizeof path, "%s/checkpoint", folder);
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(text, 1, at, file) == at && fwrite(step, 1, bytes, file) == bytes);
    at += skipped;
    cr_assert(fwrite(text + at, 1, n - at, file) == n - at && !fclose(file));
    cr_assert(syi_config_defaults(&import.config, &err) == SY_OK);
    cr_assert(syi_import_open(&import, folder, "t5x", &err) == SY_OK, "%s", err.text);
    cr_assert(!remove(path) && !remove(folder));
    syi_free(text);
}

static void expect_step(const char *step, size_t bytes)
{
    int32_t value = 0;
    open_with_step(step, bytes);
    const struct syi_import_tensor *tensor = syi_import_find(&import, "state/step");
    cr_assert(tensor && tensor->dtype == SYI_SAFETENSORS_I32 && tensor->rank == 0,
              "a run goes on from an int32");
    cr_assert(import.format->read(&import, tensor, &value, NULL) == SY_OK);
    cr_expect(value == 7 && import.step == 7 && !import.unused.length);
    syi_import_close(&import);
}

Test(import, step_of_t5x)
{
    static const char number[] = "\xa4step\7";
    static const char wide[] = "\xa4step\xc7\x12\1\x93\x90\xa5int64\xc4\x8\7\0\0\0\0\0\0";
    expect_step(number, sizeof number - 1);
    expect_step(wide, sizeof wide);
    open_with_step("\xa4stop\7", 6);
    cr_expect_null(syi_import_find(&import, "state/param_states/decoder/decoder_norm/scale/v"));
    cr_expect_not_null(
        strstr(import.unused.data, "state of the optimizer left out: there is no state/step\n"));
    syi_import_close(&import);
}

/* ---- special tokens ---- */

static struct syi_vocabulary special_bytes(int64_t extra)
{
    struct syi_vocabulary v;
    struct syi_vocabulary_part part = {
        .kind = SYI_VOCABULARY_bytes, .extra_ids = extra, .special_tokens = SYI_SPECIAL_TOKENS_HUGGINGFACE};
    cr_assert(syi_vocabulary_make(&v, &part, NULL) == SY_OK);
    return v;
}

static void expect_ids(const struct syi_vocabulary *v, const char *text, size_t n, const int32_t *want)
{
    int32_t ids[64];
    size_t counted, found;
    struct syi_span span = {text, strlen(text)};
    cr_assert(syi_vocabulary_encode(v, span, NULL, 0, &counted, NULL) == SY_OK);
    cr_assert(syi_vocabulary_encode(v, span, ids, 64, &found, NULL) == SY_OK);
    cr_assert(counted == n && found == n, "%s: %zu ids", text, found);
    cr_assert(!memcmp(ids, want, n * sizeof *want), "%s", text);
}

#define IDS(...)                                                                                             \
    sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), (int32_t[])                                          \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }

/* As ByT5Tokenizer: the first extra id is 259, and blanks around </s> are no text. */
Test(import, special_tokens_of_bytes)
{
    struct syi_vocabulary v = special_bytes(11);
    struct syi_text text = {0};
    int32_t few[2] = {-1, -1};
    size_t n;
    expect_ids(&v, "a<extra_id_0>b", IDS(100, 259, 101));
    expect_ids(&v, "a <extra_id_10> b", IDS(100, 35, 269, 35, 101));
    expect_ids(&v, "a </s>  b", IDS(100, 1, 101));
    expect_ids(&v, "<pad><unk>", IDS(0, 2));
    expect_ids(&v, "<extra_id_11>", IDS(63, 104, 123, 119, 117, 100, 98, 108, 103, 98, 52, 52, 65));
    expect_ids(&v, "<extra_id_00><", IDS(63, 104, 123, 119, 117, 100, 98, 108, 103, 98, 51, 51, 65, 63));
    cr_assert(syi_vocabulary_encode(&v, (struct syi_span){"<pad>xyz", 8}, few, 2, &n, NULL) == SY_OK);
    cr_assert(n == 4 && few[0] == 0 && few[1] == 123);
    syi_vocabulary_decode(&v, (int32_t[]){100, 259, 2, 101, 1, 102}, 6, &text);
    cr_assert_str_eq(text.data, "ab");
    text.length = 0;
    syi_vocabulary_piece(&v, 260, &text);
    cr_assert_str_eq(text.data, "<extra_id_1>");
    syi_text_free(&text);
}
