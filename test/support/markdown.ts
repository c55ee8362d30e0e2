/** Reads the Markdown pages of the repository: their blocks, their headings and their links. */

import GithubSlugger from 'github-slugger';
import { lexer, type Token, type Tokens } from 'marked';

export type PageBlock =
  | { kind: 'heading'; line: number; text: string }
  | { kind: 'comment'; line: number; text: string }
  | { kind: 'prose'; line: number; text: string }
  | { kind: 'fence'; line: number; language: string; text: string };

export interface Link {
  line: number;
  /** As written, for example `concepts.md#windows`. */
  target: string;
}

/** The top-level blocks of a page, in their order. A comment is a block of its own. */
export function blocksOf(page: string): PageBlock[] {
  return tokensWithLines(page).flatMap(([line, token]): PageBlock[] => {
    switch (token.type) {
      case 'space':
        return [];
      case 'heading':
        return [{ kind: 'heading', line, text: plainText(token.tokens ?? []) }];
      case 'code':
        return [{ kind: 'fence', line, language: token.lang ?? '', text: token.text }];
      case 'html': {
        const comments = [...token.raw.matchAll(/<!--\s*(.*?)\s*-->/gs)];
        return comments.map(([, text]) => ({ kind: 'comment', line, text }));
      }
      default:
        return [{ kind: 'prose', line, text: token.raw }];
    }
  });
}

/** Whether a page has a fenced block inside a list or a quotation. */
export function hasNestedFence(page: string): boolean {
  return tokensWithLines(page).some(([, token]) => {
    return token.type !== 'code' && allTokens([token]).some(({ type }) => type === 'code');
  });
}

/** The anchors of a page, as GitHub makes them from its headings, and those of `<a id>`. */
export function anchorsOf(page: string): Set<string> {
  const slugger = new GithubSlugger();
  const anchors = new Set<string>();
  for (const token of allTokens(lexer(page))) {
    if (token.type === 'heading') anchors.add(slugger.slug(plainText(token.tokens ?? [])));
    if (token.type !== 'html') continue;
    for (const [, id] of token.raw.matchAll(/<a\s[^>]*?\b(?:id|name)="([^"]+)"/g)) anchors.add(id);
  }
  return anchors;
}

/** All links and images of a page. */
export function linksOf(page: string): Link[] {
  return tokensWithLines(page).flatMap(([line, block]) => {
    return allTokens([block]).flatMap((token): Link[] => {
      if (token.type === 'link' || token.type === 'image') return [{ line, target: token.href }];
      if (token.type !== 'html') return [];
      const attributes = token.raw.matchAll(/\b(?:href|src)="([^"]*)"/g);
      return [...attributes].map(([, target]) => ({ line, target }));
    });
  });
}

/** References such as `[text][name]` whose definition is missing; GitHub prints them as text. */
export function brokenReferencesOf(page: string): string[] {
  return allTokens(lexer(page))
    .filter(({ type }) => type === 'text')
    .flatMap(({ raw }) => raw.match(/\[[^\]]+\]\[[^\]]*\]/g) ?? []);
}

/** The number of words in a part of a page that a reader sees, code included. */
export function wordCount(text: string): number {
  const visible = text.replace(/<!--.*?-->/gs, '');
  return visible.split(/\s+/).filter((word) => /[\p{L}\p{N}]/u.test(word)).length;
}

/** The top-level tokens of a page, each with the line where it begins. */
function tokensWithLines(page: string): [line: number, token: Token][] {
  let line = 1;
  return lexer(page).map((token) => {
    const start = line;
    line += token.raw.split('\n').length - 1;
    return [start, token];
  });
}

function allTokens(tokens: readonly Token[]): Token[] {
  return tokens.flatMap((token) => [token, ...allTokens(childrenOf(token))]);
}

function childrenOf(token: Token): Token[] {
  if (token.type === 'list') return (token as Tokens.List).items;
  if (token.type === 'table') {
    const { header, rows } = token as Tokens.Table;
    return [...header, ...rows.flat()].flatMap((cell) => cell.tokens);
  }
  return ('tokens' in token && token.tokens) || [];
}

function plainText(tokens: readonly Token[]): string {
  return tokens
    .map((token) => {
      const inner = childrenOf(token);
      if (inner.length > 0) return plainText(inner);
      return token.type === 'html' || !('text' in token) ? '' : token.text;
    })
    .join('');
}
