# SPDX-License-Identifier: Apache-2.0
"""predict.py LIBSWITCHYARD RUN_DIR WORD...: the library from another language, with ctypes and nothing else."""
import ctypes
import sys
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_double, c_int, c_size_t, c_void_p


class Error(Structure):
    _fields_ = [("code", c_int), ("text", c_char * 1024)]


class Text(Structure):
    _fields_ = [("text", c_char_p), ("bytes", c_size_t)]


class Answer(Structure):
    _fields_ = [("text", c_void_p), ("bytes", c_size_t), ("score", c_double), ("status", c_int)]

    def __str__(self):
        return ctypes.string_at(self.text, self.bytes).decode(errors="replace")  # NUL is a byte like others


def main(library, run_dir, words):
    sy = ctypes.CDLL(library)
    sy.sy_predict.argtypes = [c_void_p, c_void_p, POINTER(Text), c_size_t, POINTER(c_void_p), POINTER(Error)]
    sy.sy_answer.argtypes, sy.sy_answer.restype = [c_void_p, c_size_t, c_size_t], Answer
    sy.sy_answers_free.argtypes = sy.sy_model_close.argtypes = [c_void_p]
    error, model, answers = Error(), c_void_p(), c_void_p()
    inputs = (Text * len(words))(*[Text(word.encode(), len(word.encode())) for word in words])
    if sy.sy_model_open(run_dir.encode(), None, byref(model), byref(error)):
        return error.text.decode()
    if sy.sy_predict(model, None, inputs, len(words), byref(answers), byref(error)):
        return error.text.decode()
    for i, word in enumerate(words):
        print(word, sy.sy_answer(answers, i, 0), sep="\t")
    sy.sy_answers_free(answers)
    sy.sy_model_close(model)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: predict.py LIBSWITCHYARD RUN_DIR WORD...   (LIBSWITCHYARD: /usr/local/lib/libswitchyard.so, say)")
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
