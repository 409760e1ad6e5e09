/* SPDX-License-Identifier: Apache-2.0 */
/* The list of vocabularies: one row each. The values of vocabulary.kind, their help and the table in
 * data/vocabulary.c, which wants a `syi_vocabulary_kind_NAME` for each, come from it. */
#ifndef SYI_VOCABULARIES_H
#define SYI_VOCABULARIES_H

/* ROW(X, name, whether it has a file, help); X is handed on. */
#define SYI_VOCABULARIES(ROW, X)                                                                             \
    ROW(X, bytes, 0, "bytes: 0 padding, 1 end, 2 unknown, then the 256 bytes, as ByT5 has them; ")           \
    ROW(X, words, 1, "words: 0 padding, 1 end, 2 unknown, then the lines of the file, each a word; ")        \
    ROW(X, characters, 1, "characters: the same, each line a character; ")                                   \
    ROW(X, sentencepiece, 1, "sentencepiece: a SentencePiece model, as T5 has one (needs its plugin).")

#define SYI_VOCABULARY_CHOICE(X, name, file, help)   X(SYI_VOCABULARY_##name, #name)
#define SYI_VOCABULARY_SENTENCE(X, name, file, help) help
#define SYI_VOCABULARY_FILE(X, name, file, help)     file,
#define SYI_VOCABULARY_MAP(X)                        SYI_VOCABULARIES(SYI_VOCABULARY_CHOICE, X)
#define SYI_VOCABULARY_HELP                          SYI_VOCABULARIES(SYI_VOCABULARY_SENTENCE, )
#define SYI_VOCABULARY_FILES                         SYI_VOCABULARIES(SYI_VOCABULARY_FILE, ) /* 0 or 1 for each kind */

#endif
