/* SPDX-License-Identifier: Apache-2.0 */
/* The byte vocabulary against seqio's ByteVocabulary: expected values were computed with seqio 0.0.19. */
#include "config.h"

#include "data/vocabulary.h"
#include "data_support.h"

static struct syi_vocabulary make(int32_t n_extra)
{
    struct syi_vocabulary vocabulary;
    cr_assert(syi_vocabulary_bytes(&vocabulary, n_extra, NULL) == SY_OK);
    return vocabulary;
}

static size_t encode(const struct syi_vocabulary *vocabulary, struct syi_span text, int32_t *ids,
                     size_t capacity)
{
    size_t n;
    cr_assert(syi_vocabulary_encode(vocabulary, text, ids, capacity, &n, NULL) == SY_OK);
    return n;
}

Test(data_vocabulary, sizes)
{
    struct syi_vocabulary plain = make(0), sentinels = make(100), bad;
    struct sy_error err = {0};

    cr_assert(syi_vocabulary_size(&plain) == 259);
    cr_assert(syi_vocabulary_size(&sentinels) == 359);
    cr_assert(syi_vocabulary_bytes(&bad, -1, &err) == SY_EINVAL);
    cr_assert(strstr(err.text, "-1 extra ids"));
}

/* What a run has: the ids come from its vocabularies, and its model has a row for each. */
Test(data_vocabulary, of_a_run)
{
    struct syi_config config;
    struct syi_vocabularies v;
    struct sy_error err = {0};

    cr_assert(syi_config_defaults(&config, NULL) == SY_OK);
    config.model.vocab_size = 259;
    cr_assert(syi_vocabularies_open(&v, &config, &err) == SY_OK, "%s", err.text);
    cr_assert(v.target.end == 1 && v.input.first == 3 && syi_vocabulary_size(&v.input) == 259);
    syi_vocabularies_close(&v);
    config.model.vocab_size = 258;
    cr_assert(syi_vocabularies_open(&v, &config, &err) == SY_EINVAL);
    cr_assert(strstr(err.text, "model.vocab_size = 258 is less than the 259 ids of the vocabulary"), "%s",
              err.text);
    syi_vocabularies_close(&v);
    cr_assert(syi_vocabularies_make(&v, &config, &err) == SY_OK, "without a look at the model");
    syi_vocabularies_close(&v);
}

/* Rows that are there because sizes are rounded up are nothing to speak of; a multiple of them is. */
Test(data_vocabulary, warns_of_rows_that_are_never_trained)
{
    static const struct {
        int64_t rows;
        int warned;
    } cases[] = {{259, 0}, {384, 0}, {386, 0}, {387, 1}, {32128, 1}};
    struct syi_config config;
    struct syi_vocabularies v;

    cr_assert(syi_config_defaults(&config, NULL) == SY_OK);
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct caught_log log = {0};
        sy_log_set(catch_line, &log);
        config.model.vocab_size = cases[i].rows;
        cr_assert(syi_vocabularies_open(&v, &config, NULL) == SY_OK);
        cr_assert(log.n == cases[i].warned, "%lld rows", (long long)cases[i].rows);
        syi_vocabularies_close(&v);
    }
}

/* Targets may have a vocabulary of their own; the larger one has to fit the model. */
Test(data_vocabulary, one_for_each_side)
{
    const char *path = write_fresh("words.txt", "one\ntwo\n", 8);
    struct syi_config config;
    struct syi_vocabularies v;
    struct sy_error err = {0};
    char set[4300];

    cr_assert(syi_config_defaults(&config, NULL) == SY_OK);
    snprintf(set, sizeof set, "vocabulary.targets.file=%s", path);
    cr_assert(syi_config_set(&config, set, &err) == SY_OK, "%s", err.text);
    cr_assert(syi_config_set(&config, "vocabulary.targets.kind=words", &err) == SY_OK, "%s", err.text);
    cr_assert(syi_config_validate(&config, &err) == SY_OK, "%s", err.text);
    cr_assert(syi_vocabularies_open(&v, &config, &err) == SY_OK, "%s", err.text);
    cr_assert(syi_vocabulary_size(&v.input) == 259 && syi_vocabulary_size(&v.target) == 5);
    syi_vocabularies_close(&v);
    config.model.vocab_size = 4;
    cr_assert(syi_vocabularies_open(&v, &config, &err) == SY_EINVAL);
    cr_assert(syi_config_set(&config, "vocabulary.inputs.kind=bytes", NULL) == SY_OK);
    cr_assert(syi_config_validate(&config, &err) == SY_EINVAL);
    remove_path(path);
}

Test(data_vocabulary, encodes_bytes_and_counts)
{
    static const struct {
        const char *text;
        size_t bytes;
        int32_t ids[16];
    } cases[] = {
        {"", 0, {0}},
        {"hello", 5, {107, 104, 111, 111, 114}},
        {"na\xc3\xafve caf\xc3\xa9", 12, {113, 100, 198, 178, 121, 104, 35, 102, 100, 105, 198, 172}},
        {"\0nul", 4, {3, 113, 120, 111}},
        {"\xff", 1, {258}},
    };
    struct syi_vocabulary vocabulary = make(0);
    int32_t ids[16];

    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct syi_span text = {cases[i].text, cases[i].bytes};
        cr_assert(encode(&vocabulary, text, NULL, 0) == cases[i].bytes);
        cr_assert(encode(&vocabulary, text, ids, 16) == cases[i].bytes);
        cr_assert(memcmp(ids, cases[i].ids, cases[i].bytes * sizeof(*ids)) == 0, "case %zu", i);
    }
    ids[2] = -7;
    cr_assert(encode(&vocabulary, (struct syi_span){"hello", 5}, ids, 2) == 5);
    cr_assert(ids[1] == 104 && ids[2] == -7);
}

Test(data_vocabulary, decodes_like_seqio)
{
    static const struct {
        int32_t ids[8];
        size_t n;
        int32_t n_extra;
        const char *text;
    } cases[] = {
        {{0}, 0, 0, ""},
        {{1}, 1, 0, ""},
        {{0, 0}, 2, 0, ""},
        {{104, 105, 1, 106, 107}, 5, 0, "ef"}, /* stops at the end token */
        {{104, 0, 105}, 3, 0, "ef"},
        {{104, 2, 105}, 3, 0, "ef"},
        {{1, 104}, 2, 0, ""},
        {{259, 260, 300, 400}, 4, 0, ""}, /* out of range */
        {{358, 359, 360, 104}, 4, 100, "e"},
        {{-1, 104}, 2, 0, "e"},
        {{258, 198, 104}, 3, 0, "e"}, /* 0xff and a lone lead byte are dropped */
        {{233, 154}, 2, 0, ""},
        {{243, 162, 155, 131, 1}, 5, 0, "\xf0\x9f\x98\x80"},
    };

    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct syi_vocabulary vocabulary = make(cases[i].n_extra);
        struct syi_text text = {0};
        syi_vocabulary_decode(&vocabulary, cases[i].ids, cases[i].n, &text);
        size_t bytes = text.data ? syi_utf8_drop_invalid(text.data, text.length) : 0;
        cr_assert(bytes == strlen(cases[i].text) && (!bytes || !memcmp(text.data, cases[i].text, bytes)),
                  "case %zu", i);
        syi_text_free(&text);
    }
}

Test(data_vocabulary, every_byte_survives)
{
    struct syi_vocabulary vocabulary = make(0);
    char all[700];
    int32_t ids[700];
    struct syi_text back = {0};

    for (int i = 0; i < 700; i++) all[i] = (char)i;
    cr_assert(encode(&vocabulary, (struct syi_span){all, 700}, ids, 700) == 700);
    syi_vocabulary_decode(&vocabulary, ids, 700, &back);
    cr_assert(back.length == 700 && memcmp(all, back.data, 700) == 0);
    syi_text_free(&back);
}

Test(data_vocabulary, utf8_check)
{
    static const char *const good[] = {
        "", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\x80",     "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "\xe2\x82", "a\xff"};

    for (size_t i = 0; i < SYI_COUNT(good); i++)
        cr_assert(syi_utf8_valid((struct syi_span){good[i], strlen(good[i])}));
    for (size_t i = 0; i < SYI_COUNT(bad); i++)
        cr_assert(!syi_utf8_valid((struct syi_span){bad[i], strlen(bad[i])}));
}

/* ---- lines of a file ---- */

static int open_file(struct syi_vocabulary *vocabulary, int kind, const char *text, size_t bytes, int extra,
                     struct sy_error *err)
{
    const char *path = write_fresh("tokens.txt", text, bytes);
    struct syi_vocabulary_part part = {.kind = kind, .extra_ids = extra};
    snprintf(part.file, sizeof part.file, "%s", path);
    int status = syi_vocabulary_make(vocabulary, &part, err);
    remove_path(path);
    return status;
}

static void expect_ids(const struct syi_vocabulary *v, const char *text, size_t bytes, const int32_t *want,
                       size_t n)
{
    int32_t ids[16];
    cr_assert_eq(encode(v, (struct syi_span){text, bytes}, ids, 16), n, "%s", text);
    for (size_t i = 0; i < n; i++) cr_assert_eq(ids[i], want[i], "%s: id %zu is %d", text, i, ids[i]);
}

static void expect_text(const struct syi_vocabulary *v, const int32_t *ids, size_t n, const char *want)
{
    struct syi_text text = {0};
    syi_vocabulary_decode(v, ids, n, &text);
    cr_assert_str_eq(text.data ? text.data : "", want);
    syi_text_free(&text);
}

#define IDS(...) (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

/* Lines may end in CR LF, the last in nothing, and a byte order mark is no part of the first. */
Test(data_vocabulary, words)
{
    static const char lines[] = "\xef\xbb\xbfthe\r\ncat\nna\xc3\xafve";
    struct syi_vocabulary v;
    struct sy_error err = {0};
    cr_assert(open_file(&v, SYI_VOCABULARY_words, lines, sizeof lines - 1, 2, &err) == SY_OK, "%s", err.text);
    cr_assert(syi_vocabulary_size(&v) == 8 && v.end == 1 && v.unknown == 2 && v.first == 3);
    expect_ids(&v, " the\tcat  the\r\n", 15, IDS(3, 4, 3));
    expect_ids(&v, "The cats na\xc3\xafve", 15, IDS(2, 2, 5));
    expect_ids(&v, "", 0, NULL, 0);
    expect_ids(&v, " \n\t", 3, NULL, 0);
    expect_ids(&v, "the\0 cat \xff\xc3", 12, IDS(2, 4, 2)); /* any bytes are text */
    expect_ids(&v, "<extra_id_0> <extra_id_1> <extra_id_2> <extra_id_00> <extra_id_>", 64,
               IDS(7, 6, 2, 2, 2));
    expect_text(&v, IDS(3, 0, 4, 1, 5), "the cat"); /* up to the end token */
    expect_text(&v, IDS(3, 2, 7, 8, -1), "the \xe2\x81\x87 <extra_id_0> \xe2\x81\x87 \xe2\x81\x87");
    syi_vocabulary_close(&v);
}

Test(data_vocabulary, characters)
{
    static const char lines[] = "a\n \nn\n\xc3\xaf\n\xe6\x97\xa5\n";
    struct syi_vocabulary v;
    struct sy_error err = {0};
    cr_assert(open_file(&v, SYI_VOCABULARY_characters, lines, sizeof lines - 1, 0, &err) == SY_OK, "%s",
              err.text);
    cr_assert(syi_vocabulary_size(&v) == 8);
    expect_ids(&v, "na \xc3\xaf\xe6\x97\xa5x", 9, IDS(5, 3, 4, 6, 7, 2));
    expect_ids(&v, "\xc3\xe6\x97\xff\0a", 6, IDS(2, 2, 2, 2, 2, 3)); /* broken: one unknown a byte */
    expect_ids(&v, "", 0, NULL, 0);
    expect_text(&v, IDS(5, 3, 4, 0, 6, 7), "na \xc3\xaf\xe6\x97\xa5");
    syi_vocabulary_close(&v);
}

Test(data_vocabulary, refuses_files)
{
    static const struct {
        int kind;
        const char *text;
        size_t bytes;
        const char *why;
    } cases[] = {
        {SYI_VOCABULARY_words, "", 0, ":1: the file is empty"},
        {SYI_VOCABULARY_words, "\xef\xbb\xbf", 3, ":1: the file is empty"},
        {SYI_VOCABULARY_words, "a\n\nb\n", 5, ":2: an empty line"},
        {SYI_VOCABULARY_words, "a\nb\0c\n", 6, ":2: a NUL byte"},
        {SYI_VOCABULARY_words, "a\nb\xff\n", 5, ":2: not valid UTF-8"},
        {SYI_VOCABULARY_words, "a b\n", 4, ":1: a blank inside a word"},
        {SYI_VOCABULARY_words, "<pad>\na\n", 8, ":1: a special token"},
        {SYI_VOCABULARY_words, "a\n<extra_id_7>\n", 15, ":2: a special token"},
        {SYI_VOCABULARY_words, "b\na\nb\n", 6, ":3: the same token as in line 1"},
        {SYI_VOCABULARY_characters, "a\nbc\n", 5, ":2: more than one character"},
        {SYI_VOCABULARY_characters, "a\na\n", 4, ":2: the same token as in line 1"},
    };
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct syi_vocabulary v;
        struct sy_error err = {0};
        cr_assert(open_file(&v, cases[i].kind, cases[i].text, cases[i].bytes, 0, &err) == SY_EFORMAT);
        cr_assert(strstr(err.text, cases[i].why), "%s", err.text);
        syi_vocabulary_close(&v);
    }
}

Test(data_vocabulary, pieces_and_sentinels)
{
    static const struct {
        int32_t id;
        const char *text;
    } cases[] = {{0, "<pad>"},    {1, "</s>"},     {2, "<unk>"},          {100, "a"},
                 {35, "<0x20>"},  {258, "<0xFF>"}, {261, "<extra_id_0>"}, {259, "<extra_id_2>"},
                 {262, "<none>"}, {-1, "<none>"}};
    struct syi_vocabulary v = make(3);
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct syi_text text = {0};
        syi_vocabulary_piece(&v, cases[i].id, &text);
        cr_assert_str_eq(text.data, cases[i].text);
        syi_text_free(&text);
    }
    cr_assert(syi_vocabulary_sentinel(&v, 0) == 261 && syi_vocabulary_sentinel(&v, 2) == 259);
    cr_assert(syi_vocabulary_sentinel(&v, 3) == -1 && syi_vocabulary_sentinel(&v, -1) == -1);
}
