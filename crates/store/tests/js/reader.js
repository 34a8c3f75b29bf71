// An independent reader of the shared tables: rows as JSON lines on stdin, a summary as JSON on stdout.
// It knows the published rules and nothing of Quipu: it hashes with JavaScript's own JSON.stringify, reads every
// part's content as JSON before it looks at the type, and skips types that it does not know.
'use strict';

const { createHash } = require('node:crypto');

const sorted = (_, value) => {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return value;
  const object = {};
  for (const key of Object.keys(value).sort()) object[key] = value[key];
  return object;
};
const hashContent = (value) => createHash('sha256').update(JSON.stringify(value, sorted), 'utf8').digest('hex');

const blobs = new Map();
const nodes = new Map();
const refs = new Map();
const problems = [];
const skipped = {};

for (const line of require('node:fs').readFileSync(0, 'utf8').split('\n')) {
  if (line === '') continue;
  const row = JSON.parse(line);
  if (row.table === 'blobs') blobs.set(row.hash, row);
  if (row.table === 'nodes') nodes.set(row.id, row);
  if (row.table === 'refs') refs.set(row.name, row.node_id);
}

for (const { hash, type, content } of blobs.values()) {
  if (hashContent({ type, content: JSON.parse(content) }) !== hash) problems.push(`blob ${type} ${hash}`);
}

for (const node of nodes.values()) {
  const record = {
    parent_id: node.parent_id,
    role: node.role,
    parts_list: JSON.parse(node.parts_list),
    timestamp: node.timestamp,
  };
  if (node.external_id !== null) record.external_id = node.external_id;
  if (node.system_prompt_hash !== null) record.system_prompt_hash = node.system_prompt_hash;
  if (hashContent(record) !== node.id) problems.push(`node ${node.id}`);
  if (node.parent_id !== null && !nodes.has(node.parent_id)) problems.push(`parent of ${node.id}`);
}

const read = (node) => {
  const shown = [];
  for (const hash of JSON.parse(node.parts_list)) {
    const blob = blobs.get(hash);
    if (blob === undefined) continue;
    const data = JSON.parse(blob.content);
    if (blob.type === 'text') shown.push(data);
    else if (blob.type === 'tool_call') shown.push(data.name);
    else if (blob.type === 'tool_result') shown.push(...data.content.map((part) => part.text));
    else if (blob.type !== 'thinking' && blob.type !== 'pi_meta') skipped[blob.type] = (skipped[blob.type] ?? 0) + 1;
  }
  return shown;
};

const conversation = [];
for (let id = refs.get('PI_HEAD'); id !== undefined && id !== null; id = nodes.get(id).parent_id) {
  const node = nodes.get(id);
  const shown = read(node);
  if (node.role !== 'pi_internal') conversation.unshift([node.role, shown]);
}

process.stdout.write(JSON.stringify({ nodes: nodes.size, blobs: blobs.size, problems, skipped, conversation }));
