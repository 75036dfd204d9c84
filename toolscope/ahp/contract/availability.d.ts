/**
 * Where in a session a tool may be used.
 *
 * A value that is not known is kept as it is and counts as `userChats`: a later value can only be
 * narrower than `session`.
 *
 * @nonexhaustive
 */
export const enum ToolAvailability {
  /** In every chat of the session. */
  Session = 'session',
  /** Not in chats that a tool call spawned (`ChatOriginKind.Tool`). */
  UserChats = 'userChats',
}

export interface ToolDefinition {
  /**
   * Where in a session the tool may be used. Absent means `session`.
   *
   * A host MUST NOT expose a `userChats` tool to an agent in a chat whose origin is `tool`. If such
   * a call is produced anyway, the host MUST complete it itself with a failed result, and MUST NOT
   * set a client contributor on it.
   */
  availability?: ToolAvailability;
}
