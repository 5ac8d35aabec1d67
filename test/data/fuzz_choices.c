/* libFuzzer: any bytes as a file of multiple choice. What is taken lies inside its lists. */
#include <lockstep/data.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ls_error error = {0};
    struct ls_choices choices;
    int status = ls_choices_parse("x.bin", data, bytes, &choices, &error);
    LS_ASSERT(status == LS_OK || (status == LS_EDATA && error.text[0] && !choices.list));
    for (int64_t i = 0; i < choices.count; i++) {
        const struct ls_choice *choice = &choices.list[i];
        LS_ASSERT(choice->label >= 0 && choice->label < choice->endings);
        LS_ASSERT(choice->text + choice->endings <= choices.texts_count);
    }
    for (int64_t i = 0; i < choices.texts_count; i++) {
        const struct ls_choice_text *text = &choices.texts[i];
        LS_ASSERT(text->first >= 1 && text->first < text->count);
        LS_ASSERT(text->ids - choices.ids + text->count <= choices.ids_count);
    }
    ls_choices_release(&choices);
    return 0;
}
