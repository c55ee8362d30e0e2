/**
 * Finds the expressions of a source file that can be mutated, and the text that replaces each.
 * A mutation changes one expression, or removes one call. Types, property keys, `throw` statements,
 * and calls that log or assert stay as they are.
 */

import { parseAst } from 'rolldown/parseAst';

export interface Mutation {
  /** Offset of `original` in the file. */
  readonly start: number;
  readonly original: string;
  readonly replacement: string;
}

interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [field: string]: unknown;
}

/** Replaces a statement that is removed. */
export const REMOVED = 'void 0;';

const OPERATORS = new Map(
  [
    ...['< <=', '<= <', '> >=', '>= >', '=== !==', '!== ===', '== !=', '!= =='],
    ...['+ -', '- +', '* /', '/ *', '% *', '& |', '| &', '<< >>', '>> <<', '>>> <<'],
    ...['&& ||', '|| &&', '+= -=', '-= +=', '&= |=', '|= &='],
  ].map((pair) => pair.split(' ') as [string, string]),
);
const HAS_CONDITION = ['IfStatement', 'WhileStatement', 'DoWhileStatement'];
const SKIPPED = ['ThrowStatement', 'ImportDeclaration', 'ImportExpression', 'Decorator'];
/** Types have no value. These nodes are expressions with a type beside them. */
const TYPED_EXPRESSION = /^TS(As|Satisfies|NonNull|Instantiation)Expression$/;
const SIDE_CALL = /\b(assert\w*|log|logger)\b/;

/** All mutations of a TypeScript text, in the order of its syntax tree. */
export function findMutations(text: string): Mutation[] {
  const found: Mutation[] = [];
  const textOf = ({ start, end }: Node) => text.slice(start, end);
  const add = (node: Node, replacement: string) => {
    found.push({ start: node.start, original: textOf(node), replacement });
  };

  const swapOperator = (node: Node) => {
    const { left, right } = node as Node & { left: Node; right: Node };
    const operator = String(node.operator);
    const swapped = OPERATORS.get(operator);
    const joinsText = operator.startsWith('+') && (isText(left) || isText(right));
    if (swapped === undefined || joinsText) return;
    const middle = text.slice(left.end, right.start).replace(operator, swapped);
    add(node, text.slice(node.start, left.end) + middle + text.slice(right.start, node.end));
  };
  const negate = (condition: Node) => {
    // These have a mutation with the same effect.
    const isEquality =
      condition.type === 'BinaryExpression' && /^[!=]=/.test(`${condition.operator}`);
    if (isEquality || condition.type === 'Literal' || condition.operator === '!') return;
    add(condition, `!(${textOf(condition)})`);
  };
  const removeCall = (statement: Node) => {
    const expression = statement.expression as Node;
    const call = expression.type === 'AwaitExpression' ? (expression.argument as Node) : expression;
    if (call.type !== 'CallExpression') return;
    const callee = call.callee as Node;
    if (callee.type !== 'Super' && !SIDE_CALL.test(textOf(callee))) add(statement, REMOVED);
  };

  const addMutations = (node: Node) => {
    const { type, operator, value } = node;
    if (HAS_CONDITION.includes(type) || type === 'ConditionalExpression') negate(node.test as Node);
    if (/^(Binary|Logical|Assignment)Expression$/.test(type)) swapOperator(node);
    if (type === 'LogicalExpression' && operator === '??') add(node, textOf(node.left as Node));
    if (type === 'UnaryExpression' && (operator === '!' || operator === '-')) {
      add(node, textOf(node.argument as Node));
    }
    if (type === 'Literal' && typeof value === 'number') add(node, String(value + 1));
    if (type === 'Literal' && typeof value === 'boolean') add(node, String(!value));
    if (type === 'MemberExpression' && textOf(node) === 'Math.min') add(node, 'Math.max');
    if (type === 'MemberExpression' && textOf(node) === 'Math.max') add(node, 'Math.min');
    if (type === 'ExpressionStatement') removeCall(node);
  };
  const visit = (node: Node) => {
    if (SKIPPED.includes(node.type)) return;
    if (node.type.startsWith('TS')) {
      if (TYPED_EXPRESSION.test(node.type)) visit(node.expression as Node);
      return;
    }
    addMutations(node);
    for (const [field, value] of Object.entries(node)) {
      if (field === 'parent' || (field === 'key' && node.computed !== true)) continue;
      for (const child of Array.isArray(value) ? value : [value]) if (isNode(child)) visit(child);
    }
  };
  visit(parseAst(text, { lang: 'ts' }) as unknown as Node);
  return found;
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value && 'start' in value;
}

function isText({ type, value, left, right, expression }: Node): boolean {
  if (type === 'TemplateLiteral' || typeof value === 'string') return true;
  return [left, right, expression].some((part) => isNode(part) && isText(part));
}
