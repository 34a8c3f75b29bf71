"""A client made of the Python SDK of the protocol: one conversation with an agent.

usage: peer.py AGENT CWD
"""

import asyncio
import sys
from pathlib import Path

from acp import PROTOCOL_VERSION, RequestError, spawn_agent_process, text_block
from acp.interfaces import Client
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    FileSystemCapabilities,
    ReadTextFileResponse,
    RequestPermissionResponse,
)


class Editor(Client):
    def __init__(self):
        self.buffers = {}
        self.updates = []
        self.asked = []
        self.is_slow = asyncio.Event()

    async def request_permission(self, session_id, tool_call, options, **_):
        self.asked.append(tool_call.tool_call_id)
        chosen = next(option for option in options if option.kind == "allow_once")
        return RequestPermissionResponse(
            outcome=AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        )

    async def session_update(self, session_id, update, **_):
        self.updates.append(update)
        if self.text("agent_message_chunk").endswith("slow"):
            self.is_slow.set()

    async def read_text_file(self, session_id, path, line=None, limit=None, **_):
        if path in self.buffers:
            return ReadTextFileResponse(content=self.buffers[path])
        return ReadTextFileResponse(content=Path(path).read_text())

    async def write_text_file(self, session_id, path, content, **_):
        self.buffers[path] = content
        Path(path).write_text(content)
        return None

    def of_kind(self, kind):
        return [update for update in self.updates if update.session_update == kind]

    def text(self, kind):
        return "".join(update.content.text for update in self.of_kind(kind))


async def main(agent, cwd):
    editor = Editor()
    file = str(Path(cwd) / "a.txt")
    async with spawn_agent_process(editor, agent, "acp") as (connection, _):
        greeting = await connection.initialize(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(
                fs=FileSystemCapabilities(read_text_file=True, write_text_file=True)
            ),
        )
        assert greeting.protocol_version == 1 and greeting.agent_info.name == "quipu", greeting
        assert greeting.agent_capabilities.load_session, greeting
        opened = await connection.new_session(cwd=cwd, mcp_servers=[])
        session = opened.session_id
        assert [mode.id for mode in opened.modes.available_modes] == ["ask", "workspace", "plan", "full"]
        await connection.set_session_mode(session_id=session, mode_id="ask")
        changed = await connection.set_config_option(
            config_id="model", session_id=session, value="testing/thinker"
        )
        assert changed.config_options[1].current_value == "testing/thinker", changed
        editor.buffers[file] = "typed, not saved\n"
        done = await connection.prompt(session_id=session, prompt=[text_block("Change a.txt")])
        assert done.stop_reason == "end_turn", done
        assert editor.asked == ["c1"], editor.asked
        assert editor.buffers[file] == "changed, not saved\n", editor.buffers
        assert editor.text("agent_message_chunk") == "Changed.", editor.updates
        assert editor.of_kind("tool_call")[0].kind == "edit", editor.updates
        assert editor.of_kind("plan")[0].entries[0].content == "Look", editor.updates
        try:
            await connection.prompt(session_id="none", prompt=[text_block("hi")])
            raise AssertionError("a session that is not there took a prompt")
        except RequestError as error:
            assert error.code == -32002, error
        slow = asyncio.create_task(connection.prompt(session_id=session, prompt=[text_block("Wait")]))
        await editor.is_slow.wait()
        await connection.cancel(session_id=session)
        assert (await slow).stop_reason == "cancelled"
        await connection.close_session(session_id=session)

    editor.updates.clear()
    async with spawn_agent_process(editor, agent, "acp") as (connection, _):
        await connection.initialize(protocol_version=PROTOCOL_VERSION)
        listed = await connection.list_sessions(cwd=cwd)
        assert [row.session_id for row in listed.sessions] == [session], listed
        await connection.load_session(cwd=cwd, session_id=session, mcp_servers=[])
        assert editor.text("user_message_chunk").startswith("Change a.txt"), editor.updates
        await connection.close_session(session_id=session)
        await connection.resume_session(cwd=cwd, session_id=session, mcp_servers=[])
        done = await connection.prompt(session_id=session, prompt=[text_block("And now?")])
        assert done.stop_reason == "end_turn", done
    print("the conversation went as it should")


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 90))
