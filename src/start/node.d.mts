/** The types of node.mjs. */

export function checkNode(range: string): boolean;
export function cannotStart(sentence: string): void;
export function isSupported(version: string, range: string): boolean;
export function unsupported(version: string, range: string): string;
