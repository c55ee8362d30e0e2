/** The pages that the `docs` links of errors refer to, one for each code, served without a key. */

import { ERRORS, type ErrorCode } from '../core/errors.ts';
import type { Responder } from './responder.ts';
import type { Route } from './route.ts';

export const DOCS_PATH = '/docs/errors/';

export function docsRoutes(responder: Responder): Route[] {
  return (Object.keys(ERRORS) as ErrorCode[]).map((code) => {
    const { status, title, remedy } = ERRORS[code];
    const html =
      `<!doctype html><html lang="en"><meta charset="utf-8"><title>${code} - weir</title>` +
      `<h1>${code}</h1><p>HTTP ${status}. ${title}</p><p>${escapeHtml(remedy)}</p></html>\n`;
    return {
      method: 'GET',
      path: DOCS_PATH + code,
      handle: (res, req) => {
        responder.sendPage(res, html, req.getCaseSensitiveMethod() === 'HEAD');
      },
      isPage: true,
    };
  });
}

function escapeHtml(text: string): string {
  return text.replace(/[<>&]/g, (character) => `&#${character.charCodeAt(0)};`);
}
