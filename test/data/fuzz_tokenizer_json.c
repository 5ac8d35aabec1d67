/* tokenizer.json: any bytes alone, or in the place of a part of a good file; then texts encoded and
 * decoded with what was read. */
#include "data/tokenizer_private.h"

#include "fuzz_vocabulary.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char head[] =
    "{\"added_tokens\":[{\"id\":293,\"content\":\"<s>\",\"special\":true,\"lstrip\":true},"
    "{\"id\":294,\"content\":\"ab c\",\"special\":false,\"normalized\":true,\"rstrip\":true}],"
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a+(?=b)\"},\"content\":\"ab\"}]},"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\","
    "\"individual_digits\":true},{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":"
    "\"MergedWithNext\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
    "\"use_regex\":true}]},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":"
    "[{\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":"
    "{\"<s>\":{\"ids\":[293]}}},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","
    "\"unk_token\":null,\"ignore_merges\":true,\"merges\":[\"a b\",[\"ab\",\"c\"]],\"vocab\":";
enum { GOOD_BYTES_MAX = sizeof head + VOCABULARY_BYTES_MAX + 8 };

static void use(const struct ls_tokenizer *tokenizer)
{
    static const char text[] =
        "a b<s> ab c-12 \xc3\xa9 e\xcc\x81\xff  abcabc '\xe4\xb8\xad\n<0x41>";
    struct ls_encoder *encoder;
    struct ls_token_list ids = {0};
    struct ls_text decoded = {0};
    struct ls_error error = {0};
    LS_ASSERT(ls_encoder_new(tokenizer, &encoder, &error) == LS_OK);
    for (int special = 0; special < 2; special++) {
        const struct ls_encode_options options = {.special = special, .around = special};
        int status = ls_encode_with(encoder, text, sizeof text - 1, &options, &ids, &error);
        LS_ASSERT(status == LS_OK || status == LS_EDATA);
    }
    for (int64_t i = 0; i < ids.count; i++)
        LS_ASSERT(ids.ids[i] >= 0 && ids.ids[i] < ls_tokenizer_vocabulary(tokenizer));
    LS_ASSERT(ls_decode(tokenizer, ids.ids, ids.count, &decoded, &error) == LS_OK);
    ls_text_release(&decoded);
    ls_token_list_release(&ids);
    ls_encoder_free(encoder);
}

static void check(const char *text, size_t bytes)
{
    struct ls_error error = {0};
    struct ls_tokenizer tokenizer = {.name = strdup("fuzzed")};
    int status =
        data_tokenizer_parse_json(&tokenizer, (struct data_named_text){"file", text, bytes},
                                  (struct data_settings){0}, &error);
    LS_ASSERT(status == LS_OK || ((status == LS_EDATA || status == LS_ENOTSUP) && error.text[0]));
    if (status == LS_OK)
        use(&tokenizer);
    data_tokenizer_release(&tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint16_t place, removed;
    if (bytes < sizeof place + sizeof removed)
        return 0;
    memcpy(&place, data, sizeof place);
    memcpy(&removed, data + 2, sizeof removed);
    data += 4;
    bytes -= 4;
    char good[GOOD_BYTES_MAX], edited[2 * GOOD_BYTES_MAX];
    memcpy(good, head, sizeof head - 1);
    size_t good_bytes = sizeof head - 1 + make_vocabulary(good + sizeof head - 1);
    memcpy(good + good_bytes, "}}", 2);
    good_bytes += 2;
    if (place == 0 || bytes > VOCABULARY_BYTES_MAX) {
        check((const char *)data, bytes);
        return 0;
    }
    /* Mostly before the vocabulary, which is all alike. */
    size_t span = place % 4 ? sizeof head : good_bytes;
    size_t begin = place / 4 % span, end = begin + removed % 64 % (good_bytes - begin + 1);
    memcpy(edited, good, begin);
    memcpy(edited + begin, data, bytes);
    memcpy(edited + begin + bytes, good + end, good_bytes - end);
    check(edited, begin + bytes + good_bytes - end);
    return 0;
}
