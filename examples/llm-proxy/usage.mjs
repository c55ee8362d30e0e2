// @ts-check
/** How many tokens a call may use, and how many it has used. */

/** Tokens of an answer if the client sends no `max_tokens`. The proxy adds it to the request. */
const DEFAULT_MAX_TOKENS = 500;
/** About right for English. A text that has more tokens is charged beyond its reservation. */
const CHARACTERS_PER_TOKEN = 4;
const TOKENS_PER_MESSAGE = 4;

/**
 * @typedef {{ role: string, content: unknown }} Message
 * @typedef {{ model: string, messages: Message[], max_tokens?: number, max_completion_tokens?: number,
 *   n?: number, stream?: boolean, stream_options?: { include_usage?: boolean } }} ChatRequest
 * @typedef {{ usage?: { total_tokens?: number } | null,
 *   choices?: { delta?: { content?: string | null } }[] }} ChatChunk
 */

/**
 * @param {string} text
 * @returns {ChatRequest | undefined} undefined if the proxy cannot tell what the call may use
 */
export function readRequest(text) {
  try {
    const request = JSON.parse(text);
    const hasMaximum = (request.max_completion_tokens ?? request.max_tokens ?? null) !== null;
    const call = hasMaximum ? request : { ...request, max_tokens: DEFAULT_MAX_TOKENS };
    const { answers, tokens } = boundsOf(call);
    const isBound = [answers, tokens].every((bound) => Number.isSafeInteger(bound) && bound >= 1);
    return Array.isArray(call.messages) && isBound ? call : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The most tokens of all answers to a call.
 * @param {ChatRequest} call
 */
export function maxAnswer(call) {
  const { answers, tokens } = boundsOf(call);
  return answers * tokens;
}

/**
 * A model may follow either name of the maximum.
 * @param {ChatRequest} call
 */
function boundsOf({ n, max_completion_tokens: newer, max_tokens: older }) {
  return { answers: n ?? 1, tokens: Math.max(newer ?? 0, older ?? 0) };
}

/** @param {string} text */
function estimateTokens(text) {
  return Math.ceil(text.length / CHARACTERS_PER_TOKEN);
}

/** @param {ChatRequest} request */
export function estimatePrompt({ messages }) {
  return messages.reduce((sum, { content }) => {
    const text = typeof content === 'string' ? content : JSON.stringify(content ?? '');
    return sum + TOKENS_PER_MESSAGE + estimateTokens(text);
  }, 0);
}

/** Reads an answer of server-sent events while it passes, and counts its tokens. */
export class StreamUsage {
  /** @type {number | undefined} */
  #total;
  #streamedText = '';
  #hasStarted = false;

  /** @param {string} event one event, as received */
  add(event) {
    const chunk = chunkOf(event);
    if (chunk === undefined) return;
    this.#hasStarted = true;
    this.#total = chunk.usage?.total_tokens ?? this.#total;
    for (const { delta } of chunk.choices ?? []) this.#streamedText += delta?.content ?? '';
  }

  /**
   * @param {number} promptTokens
   * @returns what the model reported, or else what has been streamed; undefined if that is unknown
   */
  tokens(promptTokens) {
    if (this.#total !== undefined) return this.#total;
    return this.#hasStarted ? promptTokens + estimateTokens(this.#streamedText) : undefined;
  }
}

/**
 * Whether an event has the usage only. A client gets it if it has asked for it.
 * @param {string} event
 */
export function isUsageOnly(event) {
  const chunk = chunkOf(event);
  return chunk?.usage != null && chunk.choices?.length === 0;
}

/**
 * @param {string} event
 * @returns {ChatChunk | undefined}
 */
function chunkOf(event) {
  const [, data] = /^data: ?(\{.*\})\r?$/m.exec(event) ?? [];
  try {
    return data === undefined ? undefined : JSON.parse(data);
  } catch {
    return undefined;
  }
}
