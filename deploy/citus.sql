-- Distributes a house over the machines of a Citus cluster, by inbox. It has not been run on one yet:
-- read "Citus" in docs/operations.md first, which says what stands in the way. A test holds it against
-- the schema.
--
--     psql "$POSTROOM_DATABASE_URL" -1 -f deploy/citus.sql      (all servers of the house stopped)

-- These help a version of before, which does not name the inbox; Citus takes no table with triggers.
DROP TRIGGER bodies_find_inbox ON bodies;
DROP TRIGGER search_texts_find_inbox ON search_texts;
DROP TRIGGER message_labels_find_inbox ON message_labels;
DROP TRIGGER message_mailboxes_find_inbox ON message_mailboxes;
DROP TRIGGER outbox_find_inbox ON outbox;
DROP TRIGGER thread_aliases_find_inbox ON thread_aliases;

-- The rows of an inbox lie together, on one machine.
SELECT create_distributed_table('messages', 'inbox');
SELECT create_distributed_table('bodies', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('search_texts', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('message_labels', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('message_mailboxes', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('outbox', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('threads', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('thread_aliases', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('thread_ids', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('attachments', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('mailboxes', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('labels', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('events', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('removed_events', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('contacts', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('contact_shapes', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('search_tail', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('webhook_deliveries', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('errands', 'inbox', colocate_with => 'messages');

-- Small, asked for by everyone, seldom changed: a copy on each machine.
SELECT create_reference_table('inboxes');
SELECT create_reference_table('accounts');
SELECT create_reference_table('identities');
SELECT create_reference_table('keys');
SELECT create_reference_table('rules');
SELECT create_reference_table('webhooks');
SELECT create_reference_table('facts');

-- Stay on the coordinator.
--   By account:                       remotes pushes
--   One for the whole house:          search_segments search_rows search_sets search_changes
--                                     sends drafts leases domain_sends mail_texts
--                                     plans plan_items audit audit_pending audit_head
--                                     schema_version write_marks
--   By namespace, not by inbox:       shelves leaves dead_leaves segments postings
--                                     memories memory_versions memory_tags memory_links
--                                     memory_ties memory_shingles
