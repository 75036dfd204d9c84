"""Reads actions and envelopes: what `toolscope.ahp._reader` is for states."""

from typing import Any, TypeAlias

from toolscope.ahp._reader import Reader
from toolscope.ahp._views import Action, Envelope
from toolscope.model import HOST

__all__ = ["ActionReader"]

_Json: TypeAlias = dict[str, Any]


class ActionReader(Reader):
    """Reads the actions of sessions and chats, as far as they concern tools."""

    def action(self, json: _Json, path: str) -> Action:
        type_ = self.demanded(json, "type", path)
        members: dict[str, Any] = {}
        match type_:
            case "session/activeClientSet":
                client = self.object(json, "activeClient", path)
                self.there(json, "activeClient", path)
                if client is not None:
                    members["client"] = self.client(client, f"{path}.activeClient")
            case "session/activeClientRemoved":
                members["client_id"] = self.demanded(json, "clientId", path)
            case "session/serverToolsChanged":
                members["tools"] = self.tools(json, "tools", path, HOST)
                self.there(json, "tools", path)
            case "session/customizationsChanged":
                members["customizations"] = self.customizations(json, "customizations", path)
            case "session/customizationUpdated":
                new = self.object(json, "customization", path)
                self.there(json, "customization", path)
                self.customization(new or {}, f"{path}.customization")
            case "session/chatAdded":
                summary = self.object(json, "summary", path)
                self.there(json, "summary", path)
                if summary is not None:
                    members["chat"] = self.chat(summary, f"{path}.summary")
            case "session/chatUpdated":
                uri = members["chat"] = self.demanded(json, "chat", path, empty=True)
                changes = self.object(json, "changes", path)
                if changes is not None:
                    members["changes"] = self.chat(changes, f"{path}.changes", uri)
            case "session/chatRemoved":
                members["chat"] = self.demanded(json, "chat", path, empty=True)
            case "chat/turnStarted":
                members["turn_id"] = self.demanded(json, "turnId", path, empty=True)
                members["agent"] = self.selected_agent(json, path)
            case _ if type_.startswith("chat/toolCall"):
                members["turn_id"] = self.demanded(json, "turnId", path, empty=True)
                members["tool_call_id"] = self.demanded(json, "toolCallId", path, empty=True)
                members["contributor"] = self.contributor(json, path)
                if type_ == "chat/toolCallContentChanged":
                    self.subagents(json, path)
                elif type_ == "chat/toolCallComplete":
                    result = self.object(json, "result", path)
                    self.subagents(result or {}, f"{path}.result")
            case _:
                pass
        return Action(json=json, type=type_, **members)

    def envelope(self, json: _Json, path: str) -> Envelope | None:
        channel = self.demanded(json, "channel", path)
        action = self.object(json, "action", path)
        self.there(json, "action", path)
        origin = self.object(json, "origin", path)
        client = None if origin is None else self.text(origin, "clientId", f"{path}.origin")
        if action is None:
            return None
        return Envelope(
            json=json,
            channel=channel,
            action=self.action(action, f"{path}.action"),
            server_seq=self.number(json, "serverSeq", path),
            client_id=client,
            rejection_reason=self.text(json, "rejectionReason", path),
        )
