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

Test(data_vocabulary, sizes)
{
    struct syi_vocabulary plain = make(0), sentinels = make(100), bad;
    struct sy_error err = {0};

    cr_assert(syi_vocabulary_size(&plain) == 259);
    cr_assert(syi_vocabulary_size(&sentinels) == 359);
    cr_assert(syi_vocabulary_bytes(&bad, -1, &err) == SY_EINVAL);
    cr_assert(strstr(err.text, "-1 extra ids"));
}

/* What a run has: the ids come from its vocabulary, and its model has a row for each. */
Test(data_vocabulary, of_a_run)
{
    static struct syi_config config;
    struct syi_vocabulary vocabulary;
    struct sy_error err = {0};

    cr_assert(syi_config_defaults(&config, NULL) == SY_OK);
    config.model.vocab_size = 259;
    cr_assert(syi_vocabulary_open(&vocabulary, &config, &err) == SY_OK, "%s", err.text);
    cr_assert(vocabulary.end == 1 && vocabulary.first == 3 && syi_vocabulary_size(&vocabulary) == 259);
    syi_vocabulary_close(&vocabulary);
    config.model.vocab_size = 258;
    cr_assert(syi_vocabulary_open(&vocabulary, &config, &err) == SY_EINVAL);
    cr_assert(strstr(err.text, "model.vocab_size = 258 is less than the 259 ids of the vocabulary"), "%s",
              err.text);
    syi_vocabulary_close(&vocabulary);
    cr_assert(syi_vocabulary_make(&vocabulary, &config.vocabulary, &err) == SY_OK, "without a model");
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
        cr_assert(syi_vocabulary_encode(&vocabulary, text, NULL, 0) == cases[i].bytes);
        cr_assert(syi_vocabulary_encode(&vocabulary, text, ids, 16) == cases[i].bytes);
        cr_assert(memcmp(ids, cases[i].ids, cases[i].bytes * sizeof(*ids)) == 0, "case %zu", i);
    }
    ids[2] = -7;
    cr_assert(syi_vocabulary_encode(&vocabulary, (struct syi_span){"hello", 5}, ids, 2) == 5);
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
    char text[32];

    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct syi_vocabulary vocabulary = make(cases[i].n_extra);
        size_t bytes = syi_vocabulary_decode(&vocabulary, cases[i].ids, cases[i].n, text, sizeof(text));
        bytes = syi_utf8_drop_invalid(text, bytes);
        cr_assert(bytes == strlen(cases[i].text) && memcmp(text, cases[i].text, bytes) == 0, "case %zu", i);
    }
}

Test(data_vocabulary, decode_keeps_bytes_and_capacity)
{
    struct syi_vocabulary vocabulary = make(0);
    const int32_t ids[] = {258, 3, 104};
    char text[4] = "....";

    cr_assert(syi_vocabulary_decode(&vocabulary, ids, 3, text, 2) == 2);
    cr_assert(memcmp(text, "\xff\0..", 4) == 0);
}

Test(data_vocabulary, every_byte_survives)
{
    struct syi_vocabulary vocabulary = make(0);
    char all[256], back[256];
    int32_t ids[256];

    for (int i = 0; i < 256; i++) all[i] = (char)i;
    cr_assert(syi_vocabulary_encode(&vocabulary, (struct syi_span){all, 256}, ids, 256) == 256);
    cr_assert(syi_vocabulary_decode(&vocabulary, ids, 256, back, 256) == 256);
    cr_assert(memcmp(all, back, 256) == 0);
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
