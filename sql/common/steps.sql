-- name: step_list :many text, text
-- Name and checksum of every step applied, oldest first.
select name, checksum from main.crowmem_steps order by name;

-- name: step_add :none
-- Record that a step was applied.
insert into main.crowmem_steps (name, checksum, applied_at) values (:name, :checksum, :applied_at);

-- name: setting_get :one text
-- A setting of the store; no row when it was never set.
select value from main.crowmem_settings where name = :name;

-- name: setting_put :none
-- Set a setting of the store.
insert into main.crowmem_settings (name, value) values (:name, :value)
on conflict (name) do update set value = excluded.value;

-- name: setting_add :none
-- Set a setting of the store that nobody has set yet; a repeat changes nothing.
insert into main.crowmem_settings (name, value) values (:name, :value) on conflict (name) do nothing;
