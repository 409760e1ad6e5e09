/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabularies of a file's lines, on any bytes: what is accepted encodes any text (here the file itself) to ids that it
 * has, and the text of every id that is no special one comes back as that id. */
#include "config.h"

#include <string.h>
#include <unistd.h>

#include "data/vocabulary.h"
#include "fuzz.h"

static void check_token(const struct syi_vocabulary *v, int32_t id)
{
    struct syi_text text = {0};
    int32_t back[2];
    size_t n;
    syi_vocabulary_decode(v, &id, 1, &text);
    FUZZ_REQUIRE(text.status == SY_OK && text.length > 0);
    FUZZ_REQUIRE(!syi_vocabulary_encode(v, (struct syi_span){text.data, text.length}, back, 2, &n, NULL));
    FUZZ_REQUIRE(n == 1 && back[0] == id);
    syi_text_free(&text);
}

static void check_text(const struct syi_vocabulary *v, const uint8_t *data, size_t size)
{
    struct syi_span text = {(const char *)data, size};
    struct syi_text back = {0};
    size_t n, again;
    int32_t *ids = NULL;
    FUZZ_REQUIRE(!syi_vocabulary_encode(v, text, NULL, 0, &n, NULL) && n <= size);
    ids = syi_alloc((n + 1) * sizeof *ids, NULL);
    FUZZ_REQUIRE(ids && !syi_vocabulary_encode(v, text, ids, n, &again, NULL) && again == n && ids[n] == 0);
    for (size_t i = 0; i < n; i++)
        FUZZ_REQUIRE(ids[i] == v->unknown || (ids[i] >= v->first && ids[i] < syi_vocabulary_size(v)));
    syi_vocabulary_decode(v, ids, n, &back);
    FUZZ_REQUIRE(back.status == SY_OK && (n > 0 || back.length == 0));
    syi_text_free(&back);
    syi_free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *file; /* without a name; stays open */
    static const int kinds[] = {SYI_VOCABULARY_words, SYI_VOCABULARY_characters};
    if (!file) file = tmpfile();
    FUZZ_REQUIRE(file && ftruncate(fileno(file), 0) == 0);
    FUZZ_REQUIRE(pwrite(fileno(file), data, size, 0) == (ssize_t)size);
    for (size_t k = 0; k < SYI_COUNT(kinds); k++) {
        struct syi_vocabulary v;
        struct sy_error err = {0};
        struct syi_vocabulary_part part = {.kind = kinds[k], .extra_ids = k ? 0 : 3};
        snprintf(part.file, sizeof part.file, "/dev/fd/%d", fileno(file));
        if (syi_vocabulary_make(&v, &part, &err)) {
            FUZZ_REQUIRE(err.code == SY_EFORMAT && err.text[0]);
            continue;
        }
        for (int32_t id = v.first; id < v.n_base; id++) check_token(&v, id);
        check_text(&v, data, size);
        syi_vocabulary_close(&v);
    }
    return 0;
}
