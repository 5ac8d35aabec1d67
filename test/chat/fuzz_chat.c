/* Chat templates and conversations: any bytes as a template, and, behind a zero byte, as a
 * conversation. */
#include <lockstep/chat.h>

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char usual[] =
        "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", "
        "\"content\": \" \\u00e9 \"}, {\"role\": \"assistant\", \"content\": \"a\", "
        "\"tool_calls\": "
        "[{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": [1, 2.5, null]}}}]}], \"tools\": "
        "[{}]}";
    const uint8_t *end = memchr(data, 0, bytes);
    size_t template = end ? (size_t)(end - data) : bytes;
    const char *conversation = end ? (const char *)end + 1 : usual;
    size_t count = end ? bytes - template - 1 : sizeof usual - 1;
    struct ls_error error = {0};
    struct ls_chat *chat = NULL;
    struct ls_chat_text text = {0};
    int status =
        ls_chat_new("x", (const char *)data, template, "{\"bos_token\": \"<s>\"}", &chat, &error);
    LS_ASSERT(status == LS_OK || (status == LS_EDATA && error.text[0]));
    if (!status)
        status = ls_chat_render(chat, conversation, count, true, &text, &error);
    LS_ASSERT(status == LS_OK || (status == LS_EDATA && error.text[0]));
    if (!status)
        status = ls_chat_examples(chat, conversation, count, &text, &error);
    LS_ASSERT(status == LS_OK || (status == LS_EDATA && error.text[0]));
    for (int64_t i = 0; !status && i < text.parts_count; i++)
        LS_ASSERT(text.parts[i].end <= text.count);
    ls_chat_text_release(&text);
    ls_chat_free(chat);
    return 0;
}
