create table stock (item text primary key, n int not null);
create table orders (id int generated always as identity primary key, item text not null, n int not null, placed timestamptz not null default now());
insert into stock values ('tea', 10);
