/* Conversations by turns. */
#include "conversation.h"

#include "lines.h"

#include <lockstep/base/json.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int no_memory(struct ls_error *error)
{
    return ls_no_memory(error, "for a conversation");
}

int conversation_init(struct conversation *c, struct ls_error *error)
{
    *c = (struct conversation){0};
    c->messages = open_memstream(&c->text, &c->bytes);
    return c->messages ? LS_OK : no_memory(error);
}

void conversation_release(struct conversation *c)
{
    if (c->messages)
        fclose(c->messages);
    free(c->text);
    *c = (struct conversation){0};
}

int conversation_add(struct conversation *c, const char *role, const char *text, size_t bytes,
                     struct ls_error *error)
{
    fprintf(c->messages, "%s{\"role\":\"%s\",\"content\":", c->bytes ? "," : "", role);
    ls_json_string(c->messages, text, bytes);
    fputc('}', c->messages);
    return fflush(c->messages) ? no_memory(error) : LS_OK;
}

int conversation_encode(const struct conversation *c, const struct ls_text_reader *reader,
                        struct ls_text_requests *out, struct ls_error *error)
{
    char *record;
    *out = (struct ls_text_requests){0};
    int bytes = asprintf(&record, "{\"messages\":[%s]}", c->text);
    if (bytes < 0)
        return no_memory(error);
    int status = ls_requests_parse("the conversation", record, (size_t)bytes, LS_PROMPTS, reader,
                                   out, error);
    out->alone = "the conversation";
    free(record);
    return status;
}

int template_open(const char *folder, const char *file, const char *date, struct ls_chat **out,
                  struct ls_error *error)
{
    int status = ls_chat_open(folder, file, out, error);
    if (!status && date)
        status = ls_chat_date_set(*out, date, error);
    if (status && *out)
        ls_error_prefix(error, "--template-date");
    return status;
}

int conversation_template(const struct ls_tokenizer *tokenizer, const char *file, const char *date,
                          struct ls_chat **out, struct ls_error *error)
{
    char folder[PATH_MAX];
    int count = 0;
    const struct ls_tokenizer_file *files =
        tokenizer ? ls_tokenizer_files(tokenizer, &count) : NULL;
    *out = NULL;
    if (!tokenizer)
        return ls_error_set(error, LS_ECONFIG,
                            "--chat: the model has no tokenizer that can be read: name one with "
                            "data.tokenizer=FOLDER");
    if (!count && !file)
        return ls_error_set(error, LS_ECONFIG,
                            "--chat: the tokenizer %s has no chat template: name a file with "
                            "--chat-template",
                            ls_tokenizer_name(tokenizer));
    if (!count)
        return template_open(NULL, file, date, out, error);
    ls_path_parent(files[0].path, folder);
    return template_open(folder, file, date, out, error);
}

int text_share(struct ls_comm *world, char **text, size_t *bytes, struct ls_error *error)
{
    uint64_t count = *text ? *bytes + 1 : 0; /* its end included */
    bool first = ls_comm_rank(world) == 0;
    int status = ls_broadcast(world, &count, 1, LS_U64, 0, error);
    if (!first)
        *text = NULL;
    if (status || !count)
        return status;
    if (!first)
        *text = malloc(count);
    status = ls_comm_agree(world, *text ? LS_OK : no_memory(error), error);
    *bytes = count - 1;
    return status ? status : ls_broadcast(world, *text, (int64_t)count, LS_U8, 0, error);
}

void turn_read(char **text, size_t *bytes)
{
    char *line = NULL;
    size_t room = 0, end = 0;
    while (end == 0) {
        if (isatty(STDIN_FILENO)) {
            fputs("> ", stdout);
            cmd_flush();
        }
        ssize_t got = getline(&line, &room, stdin);
        if (got < 0) {
            free(line);
            line = NULL;
            break;
        }
        end = (size_t)got;
        while (end > 0 && strchr(" \t\r\n", line[end - 1]))
            end--;
        line[end] = '\0';
    }
    *text = line;
    *bytes = end;
}
