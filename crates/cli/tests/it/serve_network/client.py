"""Arguments: the address of the server, the token."""

import sys

import openai

base_url, api_key = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key=api_key)

models = [model.id for model in client.models.list()]
assert "quipu" in models and "testing/test-1" in models, models
assert client.models.retrieve("testing/test-1").owned_by == "testing"


def create(content, **more):
    more.setdefault("model", "quipu")
    return client.chat.completions.create(messages=[{"role": "user", "content": content}], **more)


hello = create("Hello")
assert hello.choices[0].message.content == "Hello from the agent.", hello
assert hello.usage.total_tokens == 15, hello

text, usage, finish = "", None, None
stream = create("What does note.txt say?", stream=True, stream_options={"include_usage": True})
for chunk in stream:
    if chunk.choices:
        text += chunk.choices[0].delta.content or ""
        finish = chunk.choices[0].finish_reason or finish
    usage = chunk.usage or usage
assert text == "I look.\n\nIt says blue.", text
assert finish == "stop" and usage.completion_tokens == 10, (finish, usage)

create("Remember 7.", user="ann")
assert create("Which?", user="ann").choices[0].message.content == "It was 7."

image = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": image}}]
assert create(parts).choices[0].message.content == "A dot."


def fails(work, wanted, status, code):
    try:
        work()
    except wanted as error:
        assert (error.status_code, error.code) == (status, code), error
    else:
        raise AssertionError("it did not fail")


fails(lambda: create("This fails."), openai.InternalServerError, 502, "model_failed")
fails(lambda: create("Two", n=2), openai.BadRequestError, 400, "unsupported_parameter")
fails(lambda: create("Who?", model="nobody"), openai.NotFoundError, 404, "model_not_found")
stranger = openai.OpenAI(base_url=base_url, api_key="another-token-of-32-characters-xx")
fails(lambda: stranger.models.list(), openai.AuthenticationError, 401, "invalid_api_key")
print("done")
