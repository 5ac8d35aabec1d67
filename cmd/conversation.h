/* A conversation that goes on by turns: what was said so far, as a chat template sees it. */
#ifndef CMD_CONVERSATION_H
#define CMD_CONVERSATION_H

#include "cmd.h"

#include <lockstep/chat.h>
#include <lockstep/comm.h>
#include <lockstep/infer/requests.h>

struct conversation {
    FILE *messages; /* JSON objects with commas between them, in text[bytes] */
    char *text;
    size_t bytes;
};
/* Nothing was said. */
int conversation_init(struct conversation *c, struct ls_error *error);
void conversation_release(struct conversation *c);
/* role: "system", "user" or "assistant". What is not UTF-8 becomes U+FFFD. */
int conversation_add(struct conversation *c, const char *role, const char *text, size_t bytes,
                     struct ls_error *error);
/* *out = one prompt, to be answered; reader->chat makes it a text. */
int conversation_encode(const struct conversation *c, const struct ls_text_reader *reader,
                        struct ls_text_requests *out, struct ls_error *error);

/* The template of a file, or (NULL) of the folder that the tokenizer comes from, on that day (NULL:
 * on none). LS_ECONFIG if it comes from none. */
int conversation_template(const struct ls_tokenizer *tokenizer, const char *file, const char *date,
                          struct ls_chat **out, struct ls_error *error);
/* Opens a template of a folder, of a file, or of the file beside the folder's special tokens. */
int template_open(const char *folder, const char *file, const char *date, struct ls_chat **out,
                  struct ls_error *error);

/* Collective. The text of rank 0 becomes every rank's, to be freed; NULL stays NULL. */
int text_share(struct ls_comm *world, char **text, size_t *bytes, struct ls_error *error);
/* *text[*bytes] = the next line of standard input that holds something, to be freed; NULL at its
 * end. At a terminal it is asked for. */
void turn_read(char **text, size_t *bytes);

#endif
