// @ts-check
/**
 * Stands for the API of a language model. It answers with the words of the prompt, over and over,
 * until `max_tokens`. A word is a token. Models: `echo`; `slow`, which waits between words; `down`,
 * which answers 500; and `broken`, which closes the connection after some words.
 */

import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';

const PORT = Number(process.env.PORT ?? 9090);
const WORD_DELAY_MS = 20;
const BROKEN_AFTER_WORDS = 10;
/** The usual answer, in tokens. */
const ANSWER_LENGTH = 80;

/** What all calls have used, as the bill of the provider says. */
const bill = { calls: 0, total_tokens: 0 };

const server = createServer(async (request, response) => {
  if (request.url === '/bill') {
    response.end(`${JSON.stringify(bill)}\n`);
    return;
  }
  const { model, messages, max_tokens: maxTokens, stream } = JSON.parse(await text(request));
  if (model === 'down') {
    response.writeHead(500).end('{"error":{"message":"overloaded"}}');
    return;
  }
  const words = messages.flatMap((/** @type {{ content: string }} */ { content }) =>
    content.split(' '),
  );
  const length = Math.min(maxTokens, ANSWER_LENGTH);
  const answer = Array.from({ length }, (_, i) => `${words[i % words.length]} `);
  const usage = {
    prompt_tokens: words.length,
    completion_tokens: 0,
    total_tokens: words.length,
  };
  bill.calls++;
  bill.total_tokens += words.length;
  const count = () => {
    usage.completion_tokens++;
    usage.total_tokens++;
    bill.total_tokens++;
  };

  if (!stream) {
    if (model === 'slow') await sleep(WORD_DELAY_MS * length);
    for (const _ of answer) count();
    const message = { role: 'assistant', content: answer.join('') };
    const choices = [{ index: 0, message, finish_reason: 'length' }];
    response.setHeader('Content-Type', 'application/json');
    const body = { object: 'chat.completion', model, choices, usage };
    response.end(`${JSON.stringify(body)}\n`);
    return;
  }
  response.setHeader('Content-Type', 'text/event-stream');
  const send = (/** @type {object} */ fields) => {
    const chunk = { object: 'chat.completion.chunk', model, ...fields };
    response.write(`data: ${JSON.stringify(chunk)}\n\n`);
  };
  for (const [i, content] of answer.entries()) {
    // The client has gone away.
    if (response.destroyed) return;
    if (model === 'broken' && i === BROKEN_AFTER_WORDS) {
      await sleep(WORD_DELAY_MS);
      response.destroy();
      return;
    }
    count();
    send({ choices: [{ index: 0, delta: { content }, finish_reason: null }] });
    if (model === 'slow') await sleep(WORD_DELAY_MS);
  }
  send({ choices: [], usage });
  response.end('data: [DONE]\n\n');
});
server.listen(PORT, '127.0.0.1', () => console.log(`http://127.0.0.1:${PORT}`));
