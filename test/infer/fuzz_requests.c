/* libFuzzer: any bytes as prompts, as JSON lines of prompts and of conversations, and as texts to
 * score. */
#include <lockstep/infer.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char template[] = "{% for m in messages %}{{ m.role ~ m.content }}{% endfor %}";
    static struct ls_tokenizer *tokenizer;
    static struct ls_chat *chat;
    struct ls_error error = {0};
    if (!tokenizer) {
        LS_ASSERT(ls_tokenizer_new("byte", &tokenizer, &error) == LS_OK);
        LS_ASSERT(ls_chat_new("t", template, sizeof template - 1, NULL, &chat, &error) == LS_OK);
    }
    for (int kind = 0; kind < 4 && bytes > 0; kind++) {
        struct ls_text_requests requests;
        const struct ls_text_reader reader = {.tokenizer = data[0] & 1 ? tokenizer : NULL,
                                              .vocabulary = 257,
                                              .encode = {.special = true, .around = true},
                                              .chat = kind == 3 ? chat : NULL};
        int status =
            ls_requests_parse(kind == 1 ? "x.txt" : "x.jsonl", (const char *)data + 1, bytes - 1,
                              kind == 2 ? LS_SCORES : LS_PROMPTS, &reader, &requests, &error);
        LS_ASSERT(status == LS_OK || error.text[0]);
        LS_ASSERT(status == LS_OK || status == LS_EDATA || status == LS_ECONFIG);
        for (int64_t i = 0; i < requests.count; i++) {
            const struct ls_text_request *request = &requests.list[i];
            LS_ASSERT(request->first <= request->tokens.count && request->tokens.count > 0);
            for (int64_t t = 0; t < request->tokens.count; t++)
                LS_ASSERT(request->tokens.ids[t] >= 0 && request->tokens.ids[t] < 257);
        }
        ls_requests_release(&requests);
    }
    return 0;
}
