// SPDX-License-Identifier: Apache-2.0
// The plugin switchyard-sentencepiece.so: SentencePiece models behind include/switchyard/vocabulary.h. The only C++ of
// the project. No exception leaves it.
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <sentencepiece_processor.h>

#include "switchyard/vocabulary.h"

#ifndef SYSP_VERSION
#define SYSP_VERSION "unknown"
#endif

namespace {

using sentencepiece::SentencePieceProcessor;

// A base-128 number of the protobuf wire format.
void put_varint(std::string *out, size_t value)
{
    for (; value >= 128; value >>= 7) out->push_back(static_cast<char>((value & 127) | 128));
    out->push_back(static_cast<char>(value));
}

// Extra ids are further pieces of the model, as seqio adds them: user defined, the name with the mark of a blank before
// it, score 0. A serialized message may be continued: what is appended to a repeated field comes after the others.
// Fields: ModelProto.pieces = 1; SentencePiece.piece = 1, .score = 2 (float), .type = 3 (USER_DEFINED = 4).
void add_extra_ids(std::string *model, int32_t n_extra)
{
    for (int32_t k = n_extra - 1; k >= 0; k--) {
        std::string name = "\xe2\x96\x81<extra_id_" + std::to_string(k) + ">", piece = "\x0a";
        put_varint(&piece, name.size());
        piece += name;
        piece.append("\x15\0\0\0\0\x18\x04", 7);
        model->push_back('\x0a');
        put_varint(model, piece.size());
        *model += piece;
    }
}

void say(const char *text, char *why, size_t why_bytes)
{
    std::snprintf(why, why_bytes, "%s", text);
    for (char *c = why; *c; c++)
        if (*c == '\n') *c = ' ';
}

void *open_model(const char *file, size_t bytes, int32_t n_extra, sy_vocabulary_ids *ids, char *why,
                 size_t why_bytes)
{
    try {
        std::string model(file, bytes);
        add_extra_ids(&model, n_extra);
        auto processor = std::make_unique<SentencePieceProcessor>();
        const auto status = processor->LoadFromSerializedProto(model);
        if (!status.ok()) {
            const std::string text = status.ToString();
            const bool inner = text.find(".cc(") != std::string::npos; // what only its authors understand
            say(inner ? "its contents cannot be read" : text.c_str(), why, why_bytes);
            return nullptr;
        }
        *ids = {processor->GetPieceSize(), processor->pad_id(), processor->eos_id(), processor->unk_id(),
                processor->bos_id()};
        return processor.release();
    } catch (const std::exception &e) {
        say(e.what(), why, why_bytes);
        return nullptr;
    }
}

void close_model(void *vocabulary)
{
    delete static_cast<SentencePieceProcessor *>(vocabulary);
}

const SentencePieceProcessor &processor_of(const void *vocabulary)
{
    return *static_cast<const SentencePieceProcessor *>(vocabulary);
}

int64_t encode(const void *vocabulary, const char *text, size_t bytes, int32_t *ids, size_t capacity)
{
    try {
        std::vector<int> found;
        if (!processor_of(vocabulary).Encode(absl::string_view(text, bytes), &found).ok()) return -1;
        for (size_t i = 0; i < found.size() && i < capacity; i++) ids[i] = found[i];
        return static_cast<int64_t>(found.size());
    } catch (const std::exception &) {
        return -1;
    }
}

int decode(const void *vocabulary, const int32_t *ids, size_t n, sy_vocabulary_put put, void *arg)
{
    try {
        std::string text;
        if (!processor_of(vocabulary).Decode(std::vector<int>(ids, ids + n), &text).ok()) return -1;
        put(arg, text.data(), text.size());
        return 0;
    } catch (const std::exception &) {
        return -1;
    }
}

int piece(const void *vocabulary, int32_t id, sy_vocabulary_put put, void *arg)
{
    const std::string &text = processor_of(vocabulary).IdToPiece(id);
    put(arg, text.data(), text.size());
    return 0;
}

} // namespace

extern "C" __attribute__((visibility("default"))) const sy_vocabulary_desc sy_vocabulary_sentencepiece = {
    SY_VOCABULARY_ABI_MAJOR, SY_VOCABULARY_ABI_MINOR, sizeof(sy_vocabulary_desc), SYSP_VERSION,
    open_model,              close_model,             encode,                     decode,
    piece};
